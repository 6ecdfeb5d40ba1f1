defmodule Tollgate.ConductTest do
  use Tollgate.Case, async: true

  doctest Tollgate.Conduct

  # The examples share the default instance.
  setup context do
    if context.test_type == :doctest, do: Tollgate.forget(Tollgate, "agent-5")
    :ok
  end

  @curve [1_000, 2_000, 5_000, 10_000, 30_000, 30_000]

  test "waits grow from one violation to the next" do
    name = start()
    assert for(_ <- 1..6, do: Tollgate.Conduct.record_violation(name, "agent-7")) == @curve
    assert Tollgate.Conduct.record_violation(name, "agent-8") == 1_000
  end

  test "a minute without a violation begins the curve anew" do
    name = start()
    for _ <- 1..3, do: Tollgate.Conduct.record_violation(name, "agent-7")
    Tollgate.advance_clock(name, 59_000)
    assert Tollgate.Conduct.record_violation(name, "agent-7") == 10_000
    # A little more, since conduct counts in eighths of a second, stricter.
    Tollgate.advance_clock(name, 60_250)
    assert Tollgate.Conduct.record_violation(name, "agent-7") == 1_000
  end

  test "an agent is rate limited after a denial, and by itself no longer a minute later" do
    name = start()
    drain(name, "agent-7", {:ws, :heavy}, 10)
    refute Tollgate.Conduct.rate_limited?(name, "agent-7")
    # A denial alone is not a violation: it has to be counted, or recorded.
    assert {:deny, _} = Tollgate.check(name, "agent-7", {:ws, :heavy})
    refute Tollgate.Conduct.rate_limited?(name, "agent-7")
    assert {:deny, 6_000} = Tollgate.check(name, "agent-7", {:ws, :heavy}, counted: true)
    assert Tollgate.Conduct.rate_limited?(name, "agent-7")
    Tollgate.advance_clock(name, 60_250)
    refute Tollgate.Conduct.rate_limited?(name, "agent-7")
  end

  test "the wait of a denial is the longer of the lane's and the curve's" do
    name = start()
    for _ <- 1..60, do: Tollgate.check(name, "agent-7", {:ws, :normal}, counted: true)

    assert for(_ <- 1..6, do: Tollgate.check(name, "agent-7", {:ws, :normal}, counted: true)) ==
             Enum.map(@curve, &{:deny, &1})

    for _ <- 1..10, do: Tollgate.check(name, "agent-8", {:ws, :heavy}, counted: true)

    assert for(_ <- 1..6, do: Tollgate.check(name, "agent-8", {:ws, :heavy}, counted: true)) ==
             Enum.map(@curve, &{:deny, max(&1, 6_000)})
  end

  test "a thousand denials disconnect nobody, and running lanes go on" do
    name = start()
    for _ <- 1..1_010, do: Tollgate.check(name, "agent-7", {:ws, :heavy}, counted: true)
    assert Tollgate.check(name, "agent-7", {:ws, :light}, counted: true) == {:allow, 119}
  end

  test "a scheduler passes over those that are rate limited, however many there are" do
    name = start(agents: 5_000)
    agents = for at <- 1..1_500, do: "agent-#{at}"
    limited = Enum.take_every(agents, 3)
    for agent <- limited, do: Tollgate.Conduct.record_violation(name, agent)
    assert Tollgate.Conduct.assignable(name, agents) == agents -- limited
    assert Tollgate.Conduct.assignable(name, []) == []
    assert Tollgate.Conduct.assignable(name, ["", "agent-2"]) == ["agent-2"]
    assert_raise ArgumentError, fn -> Tollgate.Conduct.assignable(name, [:agent]) end
    Tollgate.advance_clock(name, 60_250)
    assert Tollgate.Conduct.assignable(name, agents) == agents
  end

  test "violations can be forgiven" do
    name = start()
    for _ <- 1..4, do: Tollgate.Conduct.record_violation(name, "agent-7")
    assert %{in_window: 4, in_a_row: 4} = Tollgate.Conduct.of(name, "agent-7")
    assert Tollgate.Conduct.reset_violations(name, "agent-7") == :ok

    assert Tollgate.Conduct.of(name, "agent-7") ==
             %{in_window: 0, window_began_ms_ago: nil, in_a_row: 0, wait_ms: 0, rate_limited: false}

    refute Tollgate.Conduct.rate_limited?(name, "agent-7")
    assert Tollgate.Conduct.record_violation(name, "agent-7") == 1_000
  end

  test "without a curve a wait is the lane's own, and an agent that waits violates nothing" do
    name = start(policy: [lanes: [{"api/read", "10/minute"}]])
    drain(name, "agent-7", {:api, :read}, 10)

    for _ <- 1..8 do
      assert for(_ <- 1..8, do: Tollgate.check(name, "agent-7", {:api, :read}, counted: true)) ==
               List.duplicate({:deny, 6_000}, 8)

      Tollgate.advance_clock(name, 6_000)
      assert {:warn, 0} = Tollgate.check(name, "agent-7", {:api, :read}, counted: true)
    end

    refute Tollgate.Conduct.rate_limited?(name, "agent-7")
    Tollgate.check(name, "agent-7", {:api, :read}, counted: true)
    Tollgate.advance_clock(name, 3_000)
    assert {:deny, 3_000} = Tollgate.check(name, "agent-7", {:api, :read}, counted: true)
    assert %{in_a_row: 1} = Tollgate.Conduct.of(name, "agent-7")
  end

  test "the rules are the policy's" do
    rules = [curve_ms: [7_000, 9_000], quiet_ms: 10_000, every_denial: true, enforce_wait: true]
    name = start(policy: [lanes: [{"api/read", "1/second"}], conduct: rules])
    Tollgate.check(name, "agent-7", {:api, :read}, counted: true)
    assert {:deny, wait} = Tollgate.check(name, "agent-7", {:api, :read}, counted: true)
    assert wait in 7_000..7_125
    # Enforced: the token is there again, and the agent has to wait all the same.
    Tollgate.advance_clock(name, 5_000)
    assert {:deny, _} = Tollgate.check(name, "agent-7", {:api, :read}, counted: true)
  end
end
