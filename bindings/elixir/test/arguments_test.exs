defmodule Tollgate.ArgumentsTest do
  # Whatever the arguments: an answer, or an ArgumentError.
  # Alone: some of the calls concern the default instance, which other tests ask.
  use Tollgate.Case, async: false

  import Bitwise, only: [bsl: 2]

  @modules [
    Tollgate,
    Tollgate.Actions,
    Tollgate.Conduct,
    Tollgate.Control,
    Tollgate.Events,
    Tollgate.Hub,
    Tollgate.Observe,
    Tollgate.Socket,
    Tollgate.Metrics
  ]

  # They start something, write a file, or are not for callers.
  @others ~w(start_link child_spec write_report chunks new dispatch wanted? pubsub send unclassified log_unknown)a ++
            ~w(text numbers warning denial module_info __info__)a

  @terms [
    nil,
    true,
    :ws,
    :heavy,
    :hub,
    :violation,
    :nobody,
    {:ws, :light},
    {:ws, :nothing},
    {:a, :b, :c},
    "ws/light",
    "heavy",
    "10/minute",
    "0/minute",
    "default",
    "",
    "agent-7",
    <<255>>,
    <<1::3>>,
    0,
    1,
    -1,
    1.5,
    [],
    [1],
    [:a],
    ["a" | "b"],
    [a: 1],
    [cost: 2],
    [cost: 0],
    [plan: "x"],
    [plan: 5],
    [at: -1],
    [counted: true],
    [owner: 5],
    [owner: nil],
    [lane: 5],
    [page: -1],
    [sort: 5],
    [prefix: 5],
    [{"a", {:ws, :light}}],
    [{"a", 5}],
    [{"a", 0}],
    %{},
    %{a: 1},
    %{heavy: "1/s"},
    %{"heavy" => 5},
    [heavy: "1/s"],
    {:toml, "x ="},
    {:toml, 5},
    [lanes: 5],
    [lanes: [{"a", 5}]],
    [:violation],
    [:nothing]
  ]

  test "no public function raises anything else" do
    name = start(observe: true, roster: 100)
    more = [bsl(1, 70), String.duplicate("x", 300), self(), make_ref(), fn -> 1 end, fn _ -> 1 end]
    terms = List.to_tuple([name, name | @terms] ++ more)

    calls =
      for module <- @modules,
          {call, arity} <- module.module_info(:exports),
          call not in @others,
          do: {module, call, arity}

    assert length(calls) > 80

    ExUnit.CaptureLog.capture_log(fn ->
      for _ <- 1..40_000 do
        {module, call, arity} = Enum.random(calls)
        arguments = for _ <- 1..arity//1, do: elem(terms, :rand.uniform(tuple_size(terms)) - 1)
        # Most calls need an instance, an agent and a lane to come any further.
        likely = Enum.zip([name, "agent-7", {:ws, :light}], [3, 3, 3])
        arguments = Enum.with_index(arguments, &likely(&1, Enum.at(likely, &2)))

        try do
          apply(module, call, arguments)
        rescue
          error in ArgumentError -> assert String.valid?(error.message)
          other -> flunk("#{inspect(module)}.#{call} of #{inspect(arguments)} raised #{inspect(other)}")
        end
      end
    end)
  end

  defp likely(given, nil), do: given
  defp likely(given, {likely, of}), do: if(:rand.uniform(of) > 1, do: likely, else: given)
end
