defmodule Tollgate.CrashTest do
  # What must not take a VM down is tried in a VM of its own.
  use ExUnit.Case, async: true

  alias Tollgate.Child

  @moduletag :tmp_dir
  @moduletag timeout: 300_000

  defp lives(code) do
    {output, status} = Child.run(List.wrap(code) ++ ["IO.puts(\"it lives\")"])
    assert {status, output =~ "it lives"} == {0, true}, output
    output
  end

  test "a panic in the limiter is an exception, in every call, and the limiter goes on" do
    output =
      lives([
        # By itself, since Elixir loads the modules that a piece of code names before it runs it.
        """
        Application.load(:tollgate)
        Application.put_env(:tollgate, :nif, "tollgate_nif_that_panics")
        """,
        """
        {:ok, _} = Application.ensure_all_started(:tollgate)
        alias Tollgate.Native
        {reference, _} = Tollgate.Instance.find(Tollgate)
        lane = {:ws, :light}

        calls = [
          fn ->
            Native.new(Tollgate.Policy.source(:hub), %{
              agents: 1,
              on_full: :deny,
              id_hash: :multilinear,
              clock: :os,
              whole_seconds: true,
              observe: false,
              roster: 0,
              reservations: 1,
              reservations_per_agent: 0,
              prefault: false,
              shared: nil,
              shared_mode: 0,
              redis: nil
            })
          end,
          fn -> Native.lanes(reference) end,
          fn -> Native.plans(reference) end,
          fn -> Native.plan(reference, "default") end,
          fn -> Native.now(reference) end,
          fn -> Native.check(reference, "a", :ws, :light) end,
          fn -> Native.ask(reference, "a", lane, cost: 2) end,
          fn -> Native.ask(reference, "a", "ws/light", []) end,
          fn -> Native.verdict(reference, "a", lane, counted: true) end,
          fn -> Native.check_many(reference, [{"a", lane}], []) end,
          fn -> Native.check_many(reference, [{"a", lane}], counted: true) end,
          fn -> Native.check_all(reference, [{"a", lane}], []) end,
          fn -> Native.check_all(reference, [{"a", lane}], counted: true) end,
          fn -> Native.peek(reference, "a", lane, []) end,
          fn -> Native.refund(reference, "a", lane, cost: 2) end,
          fn -> Native.hold(reference, "a", lane, []) end,
          fn -> Native.release(reference, "a", lane, []) end,
          fn -> Native.reserve(reference, "a", lane, 1, []) end,
          fn -> Native.settle(reference, 1, 1, []) end,
          fn -> Native.settle(reference, 1, 1, so_far: true) end,
          fn -> Native.extend(reference, 1, 1, []) end,
          fn -> Native.reset(reference, "a", []) end,
          fn -> Native.reset(reference, "a", lane: lane) end,
          fn -> Native.forget(reference, "a", []) end,
          fn -> Native.record_violation(reference, "a", []) end,
          fn -> Native.conduct(reference, "a", []) end,
          fn -> Native.reset_violations(reference, "a") end,
          fn -> Native.assignable(reference, ["a"], []) end,
          fn -> Native.lane_for(reference, "ws", "ping") end,
          fn -> Native.unknown_actions(reference) end,
          fn -> Native.limit_of(reference, "a", lane) end,
          fn -> Native.assignment(reference, "a") end,
          fn -> Native.agent(reference, "a", []) end,
          fn -> Native.log_denied(reference, "a", 1) end,
          fn -> Native.shown("a", :text) end
        ]

        for call <- calls do
          # The panic is the next call's of this thread, so nothing may come between.
          output = try do
            Native.panic_next()
            call.()
          rescue
            error in ArgumentError -> error.message
          end

          case output do
            text when is_binary(text) -> IO.puts("raised: " <> text)
            # A dirty scheduler has threads of its own: the panic waits for the next call here.
            _ -> try do Native.now(reference) rescue ArgumentError -> IO.puts("raised: later") end
          end

          {:allow, _} = Tollgate.check(Tollgate, "b", {:ws, :light})
        end
        """
      ])

    assert length(Regex.scan(~r/raised: /, output)) == 35
    assert length(Regex.scan(~r/raised: a bug in tollgate/i, output)) >= 25
  end

  @tag :long
  @tag timeout: :infinity
  test "many arguments at random do not take the VM down", do: call_at_random(400_000)

  test "arguments at random do not take the VM down, and raise nothing but ArgumentError" do
    call_at_random(30_000)
  end

  defp call_at_random(times) do
    lives("""
    {:ok, _} = Application.ensure_all_started(:tollgate)
    alias Tollgate.{Native, Policy}
    seed = #{:rand.uniform(1_000_000)}
    IO.puts("seed \#{seed}")
    :rand.seed(:exsss, {1, 2, seed})
    options = %{agents: 10, on_full: :deny, id_hash: :multilinear, clock: :manual, whole_seconds: true, observe: true,
                roster: 10, reservations: 2, reservations_per_agent: 0, prefault: true, shared: nil, shared_mode: 0,
                redis: nil}
    named = Native.new(Policy.source(:hub), options)
    :ok = Native.name_lanes(named, for({name, _} <- Native.lanes(named), do: Policy.pair(name)))
    kinds = Native.new(Policy.source(lanes: [{"ws/light", "held 2"}, {"ws/heavy", "budget 9/day"}]), options)
    :ok = Native.name_lanes(kinds, [{:ws, :light}, {:ws, :heavy}])
    bare = Native.new(Policy.source(lanes: [{"a", "1/s"}]), %{options | clock: :os})

    pool = [
      named, named, named, kinds, bare, :id, :usage, :violations, :text, :json, make_ref(), self(), nil, true, false,
      :ws, :http, :light, :heavy, :manual, :infinity,
      0, 1, 2, 5, 512, -1, 1.5, 18_446_744_073_709_551_615, 18_446_744_073_709_551_616, -9_223_372_036_854_775_809,
      "", "a", "agent-7", <<255>>, <<1::3>>, String.duplicate("x", 256), String.duplicate("x", 257),
      String.duplicate("x", 2_000_000), "heavy", "ws/light", "10/minute", "0/minute", "deny", "default", "ping",
      {:ws, :light}, {:ws, :nothing}, {}, {1, 2, 3}, [], [1], ["a", "b"], ["a" | "b"], List.duplicate("a", 600),
      [{"a", {:ws, :light}}], [{"a", {:ws, :light}, cost: 0}], List.duplicate({"a", {:ws, :light}}, 600), [{"a", {:ws, :light}} | :x],
      [{"a", {nil, [], true}}], [{"a", {nil, [{"ws/light", "1/s"}], false}}], [{"a", {1, 2, 3}}], [{nil, nil}],
      [cost: 2], [cost: 0], [plan: :default], [plan: "x"], [plan: 9], [at: 0], [at: -1], [counted: true], [counted: 1],
      [lane: {:ws, :light}], [lane: 99], [so_far: true], [cost: 1, at: 5, counted: true], [{:cost, 1} | :x], [price: 1],
      [{"a", {:ws, :light}, [cost: 2, plan: :default]}], [{"a", "ws/light", [at: 1]}], {:preset, "hub"}, {:preset, "x"},
      {:toml, "x ="}, {:toml, <<255>>}, {:preset, 1}, options, Map.delete(options, :clock), %{options | agents: 0},
      %{options | redis: [1]}, %{options | redis: %{servers: 4, secret: "short"}},
      %{options | redis: %{urls: 1, lanes: [%{name: 2} | :x]}},
      %{options | redis: %{urls: "redis+unix:///nowhere", secret: String.duplicate("x", 16), lanes: [1]}},
      fn -> 1 end
    ]

    pool = List.to_tuple(pool)
    functions = for {name, arity} <- Native.module_info(:exports),
                    # What keeps files would make some wherever a text is a path: tests of budgets and control.
                    name not in [:load, :module_info, :__info__, :panic_next, :keep_budgets_in,
                                 :keep_assignments_in], do: {name, arity}
    true = length(functions) > 45

    for _ <- 1..#{times} do
      {name, arity} = Enum.random(functions)
      arguments = for _ <- 1..arity//1, do: elem(pool, :rand.uniform(tuple_size(pool)) - 1)
      # Most calls need an instance to come any further.
      arguments = if arity > 0 and name not in [:new, :shown] and :rand.uniform(4) > 1,
                     do: [Enum.random([named, kinds]) | tl(arguments)], else: arguments

      try do
        apply(Native, name, arguments)
      rescue
        error in ArgumentError -> true = String.valid?(error.message)
      end
    end
    """)
  end

  test "a module that is loaded over itself keeps its instances, while others check" do
    lives("""
    {:ok, _} = Application.ensure_all_started(:tollgate)
    for _ <- 1..10, do: Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})

    checks = for at <- 1..4 do
      Task.async(fn -> for _ <- 1..50_000, do: Tollgate.check(Tollgate, "agent-\#{at + 10}", {:ws, :light}) end)
    end

    for _ <- 1..20 do
      {:module, Tollgate.Native} = :code.load_file(Tollgate.Native)
      {:deny, _} = Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
      :code.soft_purge(Tollgate.Native) || raise "somebody runs old code"
    end

    Task.await_many(checks, :infinity)
    {:deny, _} = Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
    :persistent_term.erase(Tollgate)
    for process <- Process.list(), do: :erlang.garbage_collect(process)
    """)
  end

  test "a module that was deleted first has lost its instances, says so, and its owner starts anew" do
    lives("""
    {:ok, _} = Application.ensure_all_started(:tollgate)
    for _ <- 1..10, do: Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
    :code.purge(Tollgate.Native)
    true = :code.delete(Tollgate.Native)
    :code.purge(Tollgate.Native)

    try do
      Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
      raise "it was found"
    rescue
      error in ArgumentError -> true = error.message =~ "this load of the NIF"
    end

    owner = Process.whereis(Tollgate)
    reference = Process.monitor(owner)
    Process.exit(owner, :kill)
    receive do {:DOWN, ^reference, _, _, _} -> :ok end
    {:ok, _} = Application.ensure_all_started(:tollgate)
    wait = fn wait -> Process.whereis(Tollgate) || wait.(wait) end
    wait.(wait)
    :sys.get_state(Tollgate)
    {:allow, 9} = Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
    """)
  end

  test "what was decided outlives a VM that is killed right after", %{tmp_dir: folder} do
    path = inspect(Path.join(folder, "limits.json"))

    child =
      Child.start("""
      {:ok, _} = Application.ensure_all_started(:tollgate)
      {:ok, _} = Tollgate.start_link(name: Kept, store: #{path})
      for at <- 1..100, do: :ok = Tollgate.Control.set_override(Kept, "agent-\#{at}", :heavy, "\#{at}/minute")
      :ok = Tollgate.Control.exempt(Kept, "agent-7")
      IO.puts("decided")
      Process.sleep(:infinity)
      """)

    assert {_port, _pid, "decided"} = child
    assert Child.kill(child) != 0

    lives("""
    {:ok, _} = Application.ensure_all_started(:tollgate)
    {:ok, _} = Tollgate.start_link(name: Kept, store: #{path})
    for at <- 1..100, at != 7, do: ^at = Tollgate.Hub.capacity(Kept, "agent-\#{at}", :ws, :heavy)
    {:allow, :exempt} = Tollgate.check(Kept, "agent-7", {:ws, :heavy})
    """)
  end

  test "without :telemetry and Plug the package works, and has no Tollgate.Plug" do
    lives("""
    for module <- [:telemetry, Plug.Conn, Tollgate.Plug] do
      :code.purge(module)
      :code.delete(module)
      # What the tests have brought along is not there for others.
      :code.add_patha('nowhere')
      path = Path.join(:code.lib_dir(:tollgate), "ebin/\#{module}.beam")
      true = File.exists?(path)
    end

    # Elixir's path without the test's stand-ins.
    ebin = Path.join(System.tmp_dir!(), "tollgate-ebin-\#{System.pid()}/tollgate/ebin")
    File.mkdir_p!(ebin)
    real = Path.join(:code.lib_dir(:tollgate), "ebin")
    for file <- File.ls!(real), file not in ["telemetry.beam", "Elixir.Plug.Conn.beam", "Elixir.Tollgate.Plug.beam"] do
      File.cp!(Path.join(real, file), Path.join(ebin, file))
    end
    File.ln_s!(Path.join(:code.lib_dir(:tollgate), "priv"), Path.join(Path.dirname(ebin), "priv"))
    :code.del_path(String.to_charlist(real))
    true = :code.add_patha(String.to_charlist(ebin))
    {:ok, _} = Application.ensure_all_started(:tollgate)
    false = Code.ensure_loaded?(:telemetry)
    {_, nil} = Tollgate.Instance.find(Tollgate)
    {:allow, 59} = Tollgate.check(Tollgate, "agent-7", {:ws, :normal})
    :allow = Tollgate.Socket.message(Tollgate, "agent-7", "ping")
    File.rm_rf!(Path.dirname(Path.dirname(ebin)))
    """)
  end

  describe "the example made with Rustler" do
    test "answers as the package does" do
      alias Tollgate.RustlerExample
      reference = RustlerExample.new(100, [{"ws/heavy", "10/minute"}, {"plain", "deny"}])
      assert RustlerExample.check(reference, "agent-7", :ws, :heavy) == {:allow, 9}
      for _ <- 1..8, do: RustlerExample.check(reference, "agent-7", :ws, :heavy)
      assert RustlerExample.check(reference, "agent-7", :ws, :heavy) == {:warn, 0}
      assert {:deny, wait} = RustlerExample.check(reference, "agent-7", :ws, :heavy)
      assert wait in 5_000..6_000
      assert RustlerExample.check(reference, "agent-7", nil, :plain) == {:deny, :infinity}
      assert_raise ArgumentError, ~r/no such lane/, fn -> RustlerExample.check(reference, "agent-7", :ws, :nothing) end
      assert_raise ArgumentError, ~r/lots/, fn -> RustlerExample.new(100, [{"ws/heavy", "lots"}]) end

      for agent <- [:agent, "", String.duplicate("x", 257), 7, <<1::3>>] do
        assert_raise ArgumentError, fn -> RustlerExample.check(reference, agent, :ws, :heavy) end
      end

      assert_raise ArgumentError, fn -> RustlerExample.check(make_ref(), "agent-7", :ws, :heavy) end
    end

    test "is a template of few lines" do
      source = Path.expand("../native/tollgate_nif/src/lib.rs", __DIR__)
      assert source |> File.read!() |> String.split("\n") |> length() <= 40
    end

    test "does not take the VM down when it panics" do
      source = Path.expand("../native/tollgate_nif/rustler_example.ex", __DIR__)

      lives("""
      Application.load(:tollgate)
      Code.require_file(#{inspect(source)})

      try do
        Tollgate.RustlerExample.panic()
        raise "it did not panic"
      rescue
        error in ErlangError -> :nif_panicked = error.original
      end

      {_, 0} = Tollgate.RustlerExample.check(Tollgate.RustlerExample.new(9, [{"a", "1/s"}]), "x", nil, :a)
      """)
    end
  end
end
