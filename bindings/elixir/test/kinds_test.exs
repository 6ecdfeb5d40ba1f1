defmodule Tollgate.KindsTest do
  use Tollgate.Case, async: true

  alias Tollgate.Events

  @kinds [
    {"k/bucket", "3/minute"},
    {"k/window", "window 3/minute"},
    {"k/exact", "exact 3/5min"},
    {"k/budget", "budget 3/day"},
    {"k/held", "held 3"}
  ]

  test "every kind of lane lets three through" do
    name = start(policy: [lanes: @kinds])

    for {"k/" <> tier, _} <- @kinds do
      tier = String.to_atom(tier)
      assert for(_ <- 1..3, do: elem(Tollgate.check(name, "agent-7", {:k, tier}), 1)) == [2, 1, 0]
      assert {:deny, _} = Tollgate.check(name, "agent-7", {:k, tier})
    end

    assert {:deny, 86_400_000} = Tollgate.check(name, "agent-7", {:k, :budget})
    assert {:deny, 300_000} = Tollgate.check(name, "agent-7", {:k, :exact})
    assert {:deny, :infinity} = Tollgate.check(name, "agent-7", {:k, :held})
  end

  test "every kind of limit can be read as text and in numbers" do
    more = [{"k/month", "budget 30/month"}, {"k/week", "budget 7/week zone +02:00"}, {"k/hour", "budget 60/hour"}]
    name = start(policy: [lanes: @kinds ++ more])
    assert Tollgate.Control.limit_of(name, "agent-7", {:k, :week}) == "budget 7/week zone +02:00"

    per_day = fn tier ->
      name |> Tollgate.Hub.get_limits("agent-7", :k, tier) |> elem(1) |> Kernel.*(86_400) |> round()
    end

    assert Enum.map([:month, :week, :hour, :budget], per_day) == [1, 1, 1440, 3]
    assert Tollgate.Hub.get_limits(name, "agent-7", :k, :held) == {3_000, 0.0}
    assert %{capacity: 3, remaining: 3} = Tollgate.peek(name, "agent-7", {:k, :exact})
    assert %{lanes: lanes} = Tollgate.Observe.agent(name, "agent-7")
    assert length(lanes) == 8
  end

  test "all parts are charged, or none" do
    name = start(policy: [lanes: @kinds])
    parts = [{"user", {:k, :bucket}}, {"user", {:k, :budget}, cost: 2}, {"team", {:k, :held}}, {"team", {:k, :exact}}]
    assert Tollgate.check_all(name, parts) == {:allow, [{:allow, 2}, {:allow, 1}, {:allow, 2}, {:allow, 2}]}
    assert Tollgate.check_all(name, parts) == {:deny, 86_400_000, [{"user", {:k, :budget}, cost: 2}]}
    assert Tollgate.peek(name, "user", {:k, :bucket}).remaining == 2
    assert Tollgate.peek(name, "team", {:k, :held}).remaining == 2
    assert Tollgate.peek(name, "team", {:k, :exact}).remaining == 2

    assert Tollgate.check_all(name, [{"team", {:k, :held}}, {"user", {:k, :budget}}]) ==
             {:warn, [{:allow, 1}, {:warn, 0}]}

    :ok = Tollgate.Control.exempt(name, "boss")
    assert Tollgate.check_all(name, [{"boss", {:k, :held}, cost: 3}]) == {:allow, [{:allow, :exempt}]}
    # Where no wait helps, there is none.
    assert {:deny, :infinity, [_, _]} =
             Tollgate.check_all(name, [{"team", {:k, :held}, cost: 3}, {"user", {:k, :budget}}])

    assert Tollgate.check_all(name, [{"user", {:k, :bucket}, cost: 4}]) == {:error, :cost_above_capacity}
  end

  test "an invalid list of parts raises, and charges nothing" do
    name = start(policy: [lanes: @kinds])
    part = {"user", {:k, :bucket}}
    assert_raise ArgumentError, ~r/1 to 16 parts/, fn -> Tollgate.check_all(name, []) end
    assert_raise ArgumentError, ~r/1 to 16 parts/, fn -> Tollgate.check_all(name, List.duplicate(part, 17)) end
    assert_raise ArgumentError, ~r/no lane/, fn -> Tollgate.check_all(name, [part, {"user", {:k, :nothing}}]) end

    assert_raise ArgumentError, ~r/the cost/, fn ->
      Tollgate.check_all(name, [part, {"user", {:k, :bucket}, cost: 0}], counted: true)
    end

    assert_raise ArgumentError, ~r/the options are at:, counted:/, fn -> Tollgate.check_all(name, [part], cost: 2) end

    assert_raise ArgumentError, ~r/1 to 256/, fn -> Tollgate.check_all(name, [part, {"", {:k, :bucket}}]) end
    assert_raise ArgumentError, fn -> Tollgate.check_all(name, part) end
    assert Tollgate.peek(name, "user", {:k, :bucket}).remaining == 3
  end

  test "a denial of all is a violation of each agent in the way, once" do
    name = start(policy: [lanes: @kinds, conduct: [every_denial: true]])
    Events.subscribe(name, [:violation, :sustained_abuse])
    for agent <- ["a", "b"], do: Tollgate.check(name, agent, {:k, :bucket}, cost: 3)
    parts = [{"a", {:k, :bucket}}, {"a", {:k, :bucket}, cost: 2}, {"b", {:k, :bucket}}, {"c", {:k, :bucket}}]
    assert {:deny, 60_000, [{"a", _}, {"a", _, cost: 2}, {"b", _}]} = Tollgate.check_all(name, parts, counted: true)

    for agent <- ["a", "b"] do
      assert_receive {:tollgate, ^name, :violation, %{agent: ^agent, in_a_row: 1, channel: :k, tier: :bucket}}
    end

    assert Enum.map(["a", "b", "c"], &Tollgate.Conduct.of(name, &1).in_window) == [1, 1, 0]
    for _ <- 1..9, do: Tollgate.check_all(name, parts, counted: true)
    for agent <- ["a", "b"], do: assert_receive({:tollgate, ^name, :sustained_abuse, %{agent: ^agent}})
    Tollgate.check_all(name, parts, counted: true)
    refute_received {:tollgate, _, :sustained_abuse, _}
    # One that is not counted records nothing.
    Tollgate.check_all(name, parts)
    assert Tollgate.Conduct.of(name, "a").in_window == 11
  end

  test "one agent has only its share of all reservations, and a settlement has a maximum" do
    name = start(policy: [lanes: [{"llm/tokens", "budget 1_000/day"}]], reservations_per_agent: 1)
    reserve = fn agent -> Tollgate.reserve(name, agent, {:llm, :tokens}, 60_000, cost: 100) end
    assert {:allow, 900, first} = reserve.("user")
    assert reserve.("user") == {:error, :too_many_reservations}
    assert {:allow, 900, _} = reserve.("another")
    assert Tollgate.settle(name, first, 18_446_744_073_709_551_615) == {:error, :used_too_large}
    assert Tollgate.settle(name, first, 40) == {:ok, %{unused: 60, overspent: 0, left: 0}}
    assert {:allow, 860, _} = reserve.("user")
  end

  test "an estimate is settled once" do
    name = start(policy: [lanes: [{"llm/tokens", "budget 1_000/day"}]], reservations: 2)
    left = fn -> Tollgate.peek(name, "user", {:llm, :tokens}).remaining end
    reserve = fn estimate -> Tollgate.reserve(name, "user", {:llm, :tokens}, 60_000, cost: estimate) end
    assert {:allow, 400, first} = reserve.(600)
    assert {:deny, 86_400_000} = reserve.(500)
    assert {:allow, 300, second} = reserve.(100)
    assert reserve.(100) == {:error, :reservations_full}
    assert Tollgate.settle(name, first, 200, so_far: true) == {:ok, %{unused: 0, overspent: 0, left: 400}}
    assert Tollgate.settle(name, first, 500) == {:ok, %{unused: 0, overspent: 100, left: 0}}
    assert Tollgate.settle(name, second, 0) == {:ok, %{unused: 100, overspent: 0, left: 0}}
    assert left.() == 300

    for number <- [first, second, 0, 18_446_744_073_709_551_615] do
      assert Tollgate.settle(name, number, 1) == {:error, :unknown_reservation}
      assert Tollgate.settle(name, number, 1, so_far: true) == {:error, :unknown_reservation}
      assert Tollgate.settle(name, number, 0) == {:error, :unknown_reservation}
      assert Tollgate.extend(name, number, 1) == {:error, :unknown_reservation}
    end

    assert reserve.(1_001) == {:error, :cost_above_capacity}
    :ok = Tollgate.Control.exempt(name, "boss")
    assert {:allow, :exempt, free} = Tollgate.reserve(name, "boss", {:llm, :tokens}, 1_000, cost: 9_999)
    assert {:ok, %{unused: 9_998}} = Tollgate.settle(name, free, 1)
    assert left.() == 300
  end

  test "when its time has passed the estimate stays charged" do
    name = start(policy: [lanes: [{"llm/tokens", "budget 1_000/day"}]])
    {:allow, 900, lost} = Tollgate.reserve(name, "user", {:llm, :tokens}, 1_000, cost: 100)
    {:allow, 800, kept} = Tollgate.reserve(name, "user", {:llm, :tokens}, 1_000, cost: 100)
    Tollgate.advance_clock(name, 999)
    assert Tollgate.extend(name, kept, 1_000) == :ok
    Tollgate.advance_clock(name, 1)
    assert Tollgate.settle(name, lost, 0) == {:error, :unknown_reservation}
    assert {:ok, %{unused: 100}} = Tollgate.settle(name, kept, 0)
    assert Tollgate.peek(name, "user", {:llm, :tokens}).remaining == 900
  end

  test "what cannot be reserved raises" do
    name = start(policy: [lanes: @kinds])
    assert_raise ArgumentError, ~r/of a kind/, fn -> Tollgate.reserve(name, "user", {:k, :held}, 1_000, cost: 1) end
    assert_raise ArgumentError, ~r/of a kind/, fn -> Tollgate.reserve(name, "user", {:k, :exact}, 1_000, cost: 1) end
    assert_raise ArgumentError, ~r/the cost/, fn -> Tollgate.reserve(name, "user", {:k, :budget}, 1_000, cost: 0) end
    assert_raise ArgumentError, ~r/milliseconds/, fn -> Tollgate.reserve(name, "user", {:k, :budget}, 0, cost: 1) end
    assert_raise ArgumentError, ~r/milliseconds/, fn -> Tollgate.reserve(name, "user", {:k, :budget}, 1.5, cost: 1) end
    assert_raise ArgumentError, ~r/reservation/, fn -> Tollgate.settle(name, -1, 1) end
    assert_raise ArgumentError, ~r/used/, fn -> Tollgate.settle(name, 1, -1) end
    Process.flag(:trap_exit, true)

    assert {:error, %ArgumentError{message: "reservations has to be" <> _}} =
             Tollgate.start_link(name: :no, reservations: 0)
  end

  test "a hundred processes reserve no more than there is" do
    name = start(policy: [lanes: [{"llm/tokens", "budget 1_000/day"}]])

    answers =
      1..100
      |> Task.async_stream(
        fn _ -> for _ <- 1..20, do: Tollgate.reserve(name, "user", {:llm, :tokens}, 60_000, cost: 7) end,
        max_concurrency: 100
      )
      |> Enum.flat_map(fn {:ok, answers} -> answers end)

    assert Enum.count(answers, &(tuple_size(&1) == 3)) == 142
    assert Tollgate.peek(name, "user", {:llm, :tokens}).remaining == 6
  end
end
