defmodule Tollgate.QuestionTest do
  # Every option works with every verb, and a lane may be named in two ways.
  use Tollgate.Case, async: true

  alias Tollgate.{Conduct, Events}

  @policy [
    lanes: [{"api/read", "10/minute"}, {"llm/tokens", "budget 100/day"}, {"ws/connections", "held 2"}],
    plans: [
      {"pro", [{"api/read", "100/minute"}, {"llm/tokens", "budget 1_000/day"}, {"ws/connections", "held 5"}]}
    ],
    conduct: [every_denial: true]
  ]
  @read {:api, :read}

  describe "plan:" do
    test "works with every verb, as a string and as an atom" do
      name = start(policy: @policy)

      for plan <- ["pro", :pro] do
        agent = "agent-#{inspect(plan)}"
        assert Tollgate.check(name, agent, @read, plan: plan) == {:allow, 99}
        assert Tollgate.peek(name, agent, @read, plan: plan).capacity == 100
        assert Tollgate.refund(name, agent, @read, plan: plan) == Tollgate.peek(name, "new", @read, plan: plan)
        assert Tollgate.check_many(name, [{agent, @read, plan: plan}, {"other", @read}]) |> hd() == {:allow, 99}
        assert {:allow, [{:allow, 98}]} = Tollgate.check_all(name, [{agent, @read, plan: plan}])
        assert {:allow, 800, _} = Tollgate.reserve(name, agent, {:llm, :tokens}, 1_000, plan: plan, cost: 200)
        assert Tollgate.hold(name, agent, {:ws, :connections}, plan: plan) == {:allow, 4}
        assert Tollgate.hold(name, agent, {:ws, :connections}, plan: plan, owner: nil) == {:allow, 3}
        assert Tollgate.peek(name, agent, @read).capacity == 10
      end
    end

    test "that the policy does not have raises" do
      name = start(policy: @policy)

      for plan <- ["gold", :gold, <<255>>, 1.5, {:pro}] do
        assert_raise ArgumentError, ~r/plan/, fn -> Tollgate.check(name, "agent-7", @read, plan: plan) end
        assert_raise ArgumentError, ~r/plan/, fn -> Tollgate.check_many(name, [{"agent-7", @read, plan: plan}]) end
      end

      assert Tollgate.check(name, "agent-7", @read, plan: nil) == {:allow, 9}
    end
  end

  describe "at:" do
    test "is the instant of every verb" do
      name = start(policy: @policy)
      Tollgate.advance_clock(name, 60_000)
      now = Tollgate.now(name)
      assert now == 60_000_000_000
      assert Tollgate.check(name, "agent-7", @read, cost: 10, at: now) == {:warn, 0}
      later = now + 6_000_000_000
      assert Tollgate.peek(name, "agent-7", @read, at: now).remaining == 0
      assert Tollgate.peek(name, "agent-7", @read, at: later).remaining == 1
      assert Tollgate.check_many(name, [{"agent-7", @read}], at: now) == [{:deny, 6_000}]
      assert {:deny, 6_000, [_]} = Tollgate.check_all(name, [{"agent-7", @read}], at: now)
      assert Tollgate.refund(name, "agent-7", @read, at: now, cost: 2).remaining == 2
      assert {:allow, 90, reservation} = Tollgate.reserve(name, "a", {:llm, :tokens}, 1_000, cost: 10, at: now)
      assert Tollgate.extend(name, reservation, 2_000, at: now) == :ok
      assert {:ok, %{unused: 10}} = Tollgate.settle(name, reservation, 0, at: now)
      assert Tollgate.hold(name, "agent-7", {:ws, :connections}, at: now) == {:allow, 1}
      assert Conduct.record_violation(name, "agent-7", at: now) == 0
      assert Conduct.rate_limited?(name, "agent-7", at: now)
      refute Conduct.rate_limited?(name, "agent-7", at: now + 61_000_000_000)
      assert Conduct.assignable(name, ["agent-7"], at: now + 61_000_000_000) == ["agent-7"]
      assert Conduct.of(name, "agent-7", at: now).in_a_row == 1
      assert Tollgate.Observe.agent(name, "agent-7", at: now).in_a_row == 1
      assert Tollgate.reset(name, "agent-7", at: now) == :ok
      assert Tollgate.peek(name, "agent-7", @read, at: now).remaining == 10
      assert Tollgate.forget(name, "a", at: now)
    end

    test "is the same for all chunks of a long list" do
      name = start(policy: [lanes: [{"api/read", "2000/hour"}]], clock: :os)
      now = Tollgate.now(name)
      requests = List.duplicate({"agent-7", @read}, 1_500)
      answers = Tollgate.check_many(name, requests, at: now)
      assert List.last(answers) == {:allow, 500}
      # On a clock that runs, all requests of one call have one instant too: nothing comes back between chunks.
      assert Tollgate.check_many(name, List.duplicate({"agent-8", @read}, 1_500)) == answers
    end
  end

  describe "counted: true" do
    test "makes a denial of every verb a violation, and sends it to subscribers" do
      name = start(policy: @policy)
      Events.subscribe(name, [:violation])

      violation = fn ->
        assert_received {:tollgate, ^name, :violation, fields}
        fields
      end

      Tollgate.check(name, "agent-7", @read, cost: 10)

      assert {:deny, 6_000} = Tollgate.check(name, "agent-7", @read, counted: true)
      assert violation.() == %{agent: "agent-7", channel: :api, tier: :read, retry_after_ms: 6_000, in_a_row: 1}

      assert [{:deny, 6_000}, {:allow, 9}] =
               Tollgate.check_many(name, [{"agent-7", @read}, {"other", @read}], counted: true)

      assert %{agent: "agent-7", in_a_row: 2} = violation.()
      assert {:deny, 6_000, _} = Tollgate.check_all(name, [{"agent-7", "api/read"}], counted: true)
      assert %{agent: "agent-7", channel: :api, tier: :read, in_a_row: 3} = violation.()

      Tollgate.check(name, "agent-7", {:llm, :tokens}, cost: 100)
      assert {:deny, _} = Tollgate.reserve(name, "agent-7", "llm/tokens", 1_000, counted: true)
      assert %{channel: :llm, tier: :tokens, in_a_row: 4} = violation.()

      for _ <- 1..2, do: Tollgate.hold(name, "agent-7", {:ws, :connections})
      assert Tollgate.hold(name, "agent-7", {:ws, :connections}, counted: true) == {:deny, :infinity}
      assert %{tier: :connections, in_a_row: 5} = violation.()
      assert Tollgate.hold(name, "agent-7", {:ws, :connections}, counted: true, owner: nil) == {:deny, :infinity}
      assert %{tier: :connections, in_a_row: 6} = violation.()
      assert %{in_window: 6, in_a_row: 6, rate_limited: true} = Conduct.of(name, "agent-7")
    end

    test "is not the default, and counted: false is" do
      name = start(policy: @policy)
      Events.subscribe(name, [:violation])
      Tollgate.check(name, "agent-7", @read, cost: 10)

      for options <- [[], [counted: false]],
          do: assert({:deny, 6_000} = Tollgate.check(name, "agent-7", @read, options))

      assert [{:deny, 6_000}] = Tollgate.check_many(name, [{"agent-7", @read}])
      assert {:deny, 6_000, _} = Tollgate.check_all(name, [{"agent-7", @read}])
      refute_received {:tollgate, _, _, _}
      assert Conduct.of(name, "agent-7").in_window == 0
    end
  end

  test "a lane may be named by its text, with every verb" do
    name = start(policy: @policy)
    assert Tollgate.check(name, "agent-7", "api/read") == {:allow, 9}
    assert Tollgate.check_many(name, [{"agent-7", "api/read"}]) == [{:allow, 8}]
    assert {:allow, [{:allow, 7}]} = Tollgate.check_all(name, [{"agent-7", "api/read"}])
    assert Tollgate.peek(name, "agent-7", "api/read") == Tollgate.peek(name, "agent-7", @read)
    assert Tollgate.refund(name, "agent-7", "api/read").remaining == 8
    assert Tollgate.Control.limit_of(name, "agent-7", "api/read") == "10/minute"
    assert Tollgate.reset(name, "agent-7", lane: "api/read") == :ok
    assert Tollgate.peek(name, "agent-7", @read).remaining == 10
    # A slot is the same one, whichever way its lane was named.
    assert Tollgate.hold(name, "agent-7", "ws/connections") == {:allow, 1}
    assert %{remaining: 2} = Tollgate.release(name, "agent-7", {:ws, :connections})

    for lane <- ["api/nothing", "no such atom at all/#{System.unique_integer()}", <<255>>, :read, {:api}, nil, 1.5] do
      assert_raise ArgumentError, ~r/lane/, fn -> Tollgate.check(name, "agent-7", lane) end
      assert_raise ArgumentError, ~r/lane/, fn -> Tollgate.hold(name, "agent-7", lane) end
    end
  end

  test "a slot of more than one is released with all of its cost" do
    name = start(policy: @policy)
    connections = {:ws, :connections}
    assert Tollgate.hold(name, "agent-7", connections, cost: 2) == {:warn, 0}
    assert %{remaining: 2} = Tollgate.release(name, "agent-7", connections)
    task = Task.async(fn -> Tollgate.hold(name, "agent-7", connections, cost: 2) end)
    assert Task.await(task) == {:warn, 0}
    eventually(fn -> Tollgate.peek(name, "agent-7", connections).remaining == 2 end)
    assert Tollgate.hold(name, "agent-7", connections, cost: 2, owner: nil) == {:warn, 0}
    assert %{remaining: 1} = Tollgate.release(name, "agent-7", connections, owner: nil)
    assert %{remaining: 2} = Tollgate.release(name, "agent-7", connections, owner: nil)

    assert_raise ArgumentError, ~r/no further options/, fn ->
      Tollgate.release(name, "agent-7", connections, cost: 2)
    end
  end

  test "a reset is of all lanes, or of the one that is named" do
    name = start(policy: @policy)
    left = fn -> for lane <- [@read, {:llm, :tokens}], do: Tollgate.peek(name, "agent-7", lane).remaining end
    for lane <- [@read, {:llm, :tokens}], do: Tollgate.check(name, "agent-7", lane, cost: 5)
    assert Tollgate.reset(name, "agent-7", lane: @read) == :ok
    assert left.() == [10, 95]
    assert Tollgate.reset(name, "agent-7") == :ok
    assert left.() == [10, 100]
  end

  test "options that a verb does not have raise, say which it has, and charge nothing" do
    name = start(policy: @policy)

    for {options, message} <- [
          {[price: 1], "the options are cost:, plan:, at:, counted:, limit:, got: price"},
          {[lane: @read], "got: lane"},
          {[so_far: true], "got: so_far"},
          {[owner: nil], "got: owner"},
          {[at: -1], "an instant in nanoseconds"},
          {[at: nil], "an instant in nanoseconds"},
          {[counted: 1], "counted: has to be true or false"},
          {[:cost], "the options are"},
          {[{:cost, 1} | :more], "the options are"},
          {%{cost: 1}, "the options are"}
        ],
        verb <- [&Tollgate.check/4, &Tollgate.peek/4, &Tollgate.refund/4] do
      assert_raise ArgumentError, ~r/#{Regex.escape(message)}/, fn -> verb.(name, "agent-7", @read, options) end
    end

    for verb <- [&Tollgate.hold/4, &Tollgate.release/4], options <- [%{cost: 1}, [:cost], [price: 1], [owner: "me"]] do
      assert_raise ArgumentError, fn -> verb.(name, "agent-7", {:ws, :connections}, options) end
    end

    for request <- [{"agent-7", @read, at: 1}, {"agent-7", @read, counted: true}] do
      assert_raise ArgumentError, ~r/the options are cost:, plan:/, fn -> Tollgate.check_many(name, [request]) end
    end

    assert_raise ArgumentError, ~r/the options are at:, counted:/, fn ->
      Tollgate.check_many(name, [{"agent-7", @read}], cost: 2)
    end

    assert_raise ArgumentError, ~r/the options are at:, lane:/, fn -> Tollgate.reset(name, "agent-7", cost: 2) end
    assert_raise ArgumentError, ~r/the options are at:, so_far:/, fn -> Tollgate.settle(name, 1, 1, cost: 2) end
    assert_raise ArgumentError, ~r/the options are at:/, fn -> Conduct.of(name, "agent-7", counted: true) end
    assert Tollgate.check(name, "agent-7", @read) == {:allow, 9}
  end
end
