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
      assert for(_ <- 1..3, do: elem(Tollgate.check(name, "agent-7", :k, tier), 1)) == [2, 1, 0]
      assert {:deny, _} = Tollgate.check(name, "agent-7", :k, tier)
    end

    assert {:deny, 86_400_000} = Tollgate.check(name, "agent-7", :k, :budget)
    assert {:deny, 300_000} = Tollgate.check(name, "agent-7", :k, :exact)
    assert {:deny, :infinity} = Tollgate.check(name, "agent-7", :k, :held)
  end

  test "every kind of limit is told as a text and in numbers" do
    more = [{"k/month", "budget 30/month"}, {"k/week", "budget 7/week zone +02:00"}, {"k/hour", "budget 60/hour"}]
    name = start(policy: [lanes: @kinds ++ more])
    assert Tollgate.limit_of(name, "agent-7", :k, :week) == "budget 7/week zone +02:00"
    per_day = fn tier -> name |> Tollgate.get_limits("agent-7", :k, tier) |> elem(1) |> Kernel.*(86_400) |> round() end
    assert Enum.map([:month, :week, :hour, :budget], per_day) == [1, 1, 1440, 3]
    assert Tollgate.get_limits(name, "agent-7", :k, :held) == {3_000, 0.0}
    assert %{capacity: 3, remaining: 3} = Tollgate.status(name, "agent-7", :k, :exact)
    assert %{lanes: lanes} = Tollgate.agent(name, "agent-7")
    assert length(lanes) == 8
  end

  test "all parts are charged, or none" do
    name = start(policy: [lanes: @kinds])
    parts = [{"user", :k, :bucket}, {"user", :k, :budget, 2}, {"team", :k, :held}, {"team", :k, :exact}]
    assert Tollgate.check_all(name, parts) == {:allow, [{:allow, 2}, {:allow, 1}, {:allow, 2}, {:allow, 2}]}
    assert Tollgate.check_all(name, parts) == {:deny, 86_400_000, [{"user", :k, :budget, 2}]}
    assert Tollgate.status(name, "user", :k, :bucket).remaining == 2
    assert Tollgate.status(name, "team", :k, :held).remaining == 2
    assert Tollgate.status(name, "team", :k, :exact).remaining == 2
    assert Tollgate.check_all(name, [{"team", :k, :held}, {"user", :k, :budget}]) == {:warn, [{:allow, 1}, {:warn, 0}]}
    :ok = Tollgate.exempt(name, "boss")
    assert Tollgate.check_all(name, [{"boss", :k, :held, 3}]) == {:allow, [{:allow, :exempt}]}
    # Where no wait helps, none is told.
    assert {:deny, :infinity, [_, _]} = Tollgate.check_all(name, [{"team", :k, :held, 3}, {"user", :k, :budget}])
    assert Tollgate.check_all(name, [{"user", :k, :bucket, 4}]) == {:error, :cost_above_capacity}
  end

  test "what is no list of parts raises, and charges nothing" do
    name = start(policy: [lanes: @kinds])
    part = {"user", :k, :bucket}
    assert_raise ArgumentError, ~r/1 to 16 parts/, fn -> Tollgate.check_all(name, []) end
    assert_raise ArgumentError, ~r/1 to 16 parts/, fn -> Tollgate.check_all(name, List.duplicate(part, 17)) end
    assert_raise ArgumentError, ~r/no lane/, fn -> Tollgate.check_all(name, [part, {"user", :k, :nothing}]) end
    assert_raise ArgumentError, ~r/the cost/, fn -> Tollgate.admit_all(name, [part, {"user", :k, :bucket, 0}]) end
    assert_raise ArgumentError, ~r/1 to 256/, fn -> Tollgate.check_all(name, [part, {"", :k, :bucket}]) end
    assert_raise ArgumentError, fn -> Tollgate.check_all(name, part) end
    assert Tollgate.status(name, "user", :k, :bucket).remaining == 3
  end

  test "a denial of all is a violation of each agent in the way, once" do
    name = start(policy: [lanes: @kinds, conduct: [every_denial: true]])
    Events.subscribe(name, [:violation, :sustained_abuse])
    for agent <- ["a", "b"], do: Tollgate.check(name, agent, :k, :bucket, cost: 3)
    parts = [{"a", :k, :bucket}, {"a", :k, :bucket, 2}, {"b", :k, :bucket}, {"c", :k, :bucket}]
    assert {:deny, 60_000, [{"a", _, _}, {"a", _, _, 2}, {"b", _, _}]} = Tollgate.admit_all(name, parts)

    for agent <- ["a", "b"] do
      assert_receive {:tollgate, ^name, :violation, %{agent: ^agent, consecutive: 1, channel: :k, tier: :bucket}}
    end

    assert Enum.map(["a", "b", "c"], &Tollgate.violations(name, &1).violations) == [1, 1, 0]
    for _ <- 1..9, do: Tollgate.admit_all(name, parts)
    for agent <- ["a", "b"], do: assert_receive({:tollgate, ^name, :sustained_abuse, %{agent: ^agent}})
    Tollgate.admit_all(name, parts)
    refute_received {:tollgate, _, :sustained_abuse, _}
    # A check of all records nothing.
    Tollgate.check_all(name, parts)
    assert Tollgate.violations(name, "a").violations == 11
  end

  test "one agent has only its share of all reservations, and a commit has a maximum" do
    name = start(policy: [lanes: [{"llm/tokens", "budget 1_000/day"}]], reservations_per_agent: 1)
    reserve = fn agent -> Tollgate.reserve(name, agent, :llm, :tokens, 100, 60_000) end
    assert {:allow, 900, first} = reserve.("user")
    assert reserve.("user") == {:error, :too_many_reservations}
    assert {:allow, 900, _} = reserve.("another")
    assert Tollgate.commit(name, first, 18_446_744_073_709_551_615) == {:error, :used_too_large}
    assert Tollgate.commit(name, first, 40) == {:ok, %{unused: 60, overspent: 0, left: 0}}
    assert {:allow, 860, _} = reserve.("user")
  end

  test "an estimate is settled once" do
    name = start(policy: [lanes: [{"llm/tokens", "budget 1_000/day"}]], reservations: 2)
    left = fn -> Tollgate.status(name, "user", :llm, :tokens).remaining end
    reserve = fn estimate -> Tollgate.reserve(name, "user", :llm, :tokens, estimate, 60_000) end
    assert {:allow, 400, first} = reserve.(600)
    assert {:deny, 86_400_000} = reserve.(500)
    assert {:allow, 300, second} = reserve.(100)
    assert reserve.(100) == {:error, :reservations_full}
    assert Tollgate.commit_part(name, first, 200) == {:ok, %{unused: 0, overspent: 0, left: 400}}
    assert Tollgate.commit(name, first, 500) == {:ok, %{unused: 0, overspent: 100, left: 0}}
    assert Tollgate.cancel(name, second) == {:ok, %{unused: 100, overspent: 0, left: 0}}
    assert left.() == 300

    for number <- [first, second, 0, 18_446_744_073_709_551_615] do
      assert Tollgate.commit(name, number, 1) == {:error, :unknown_reservation}
      assert Tollgate.commit_part(name, number, 1) == {:error, :unknown_reservation}
      assert Tollgate.cancel(name, number) == {:error, :unknown_reservation}
      assert Tollgate.extend(name, number, 1) == {:error, :unknown_reservation}
    end

    assert reserve.(1_001) == {:error, :cost_above_capacity}
    :ok = Tollgate.exempt(name, "boss")
    assert {:allow, :exempt, free} = Tollgate.reserve(name, "boss", :llm, :tokens, 9_999, 1_000)
    assert {:ok, %{unused: 9_998}} = Tollgate.commit(name, free, 1)
    assert left.() == 300
  end

  test "when its time has passed the estimate stays charged" do
    name = start(policy: [lanes: [{"llm/tokens", "budget 1_000/day"}]])
    {:allow, 900, lost} = Tollgate.reserve(name, "user", :llm, :tokens, 100, 1_000)
    {:allow, 800, kept} = Tollgate.reserve(name, "user", :llm, :tokens, 100, 1_000)
    Tollgate.advance_clock(name, 999)
    assert Tollgate.extend(name, kept, 1_000) == :ok
    Tollgate.advance_clock(name, 1)
    assert Tollgate.cancel(name, lost) == {:error, :unknown_reservation}
    assert {:ok, %{unused: 100}} = Tollgate.cancel(name, kept)
    assert Tollgate.status(name, "user", :llm, :tokens).remaining == 900
  end

  test "what cannot be reserved raises" do
    name = start(policy: [lanes: @kinds])
    assert_raise ArgumentError, ~r/of this kind/, fn -> Tollgate.reserve(name, "user", :k, :held, 1, 1_000) end
    assert_raise ArgumentError, ~r/of this kind/, fn -> Tollgate.reserve(name, "user", :k, :exact, 1, 1_000) end
    assert_raise ArgumentError, ~r/the cost/, fn -> Tollgate.reserve(name, "user", :k, :budget, 0, 1_000) end
    assert_raise ArgumentError, ~r/milliseconds/, fn -> Tollgate.reserve(name, "user", :k, :budget, 1, 0) end
    assert_raise ArgumentError, ~r/milliseconds/, fn -> Tollgate.reserve(name, "user", :k, :budget, 1, 1.5) end
    assert_raise ArgumentError, ~r/reservation/, fn -> Tollgate.commit(name, -1, 1) end
    assert_raise ArgumentError, ~r/used/, fn -> Tollgate.commit(name, 1, -1) end
    Process.flag(:trap_exit, true)

    assert {:error, %ArgumentError{message: "reservations has to be" <> _}} =
             Tollgate.start_link(name: :no, reservations: 0)
  end

  test "a hundred processes reserve no more than there is" do
    name = start(policy: [lanes: [{"llm/tokens", "budget 1_000/day"}]])

    answers =
      1..100
      |> Task.async_stream(fn _ -> for _ <- 1..20, do: Tollgate.reserve(name, "user", :llm, :tokens, 7, 60_000) end,
        max_concurrency: 100
      )
      |> Enum.flat_map(fn {:ok, answers} -> answers end)

    assert Enum.count(answers, &(tuple_size(&1) == 3)) == 142
    assert Tollgate.status(name, "user", :llm, :tokens).remaining == 6
  end
end
