defmodule Tollgate.PolicyTest do
  # A keyword list becomes TOML, whatever its texts hold.
  use Tollgate.Case, async: true

  alias Tollgate.{Actions, Control, Policy}

  test "every key reaches the limiter" do
    policy = [
      conduct: [
        curve_ms: [250, 4_000],
        quiet_ms: 2_000,
        abuse_violations: 3,
        abuse_within_ms: 60_000,
        every_denial: true
      ],
      actions: [{"api", "read", ["get", "list"]}, {:api, :write, [:post]}, {"api", "read", ["head"]}],
      plans: [{"free", [{"total", "5/minute"}]}, {:pro, %{"api/write" => "200/minute"}}, {"empty", []}],
      lanes: [{"api/write", "20/minute"}, {"api/read", "10/minute"}],
      outside_total: ["api/write"],
      unknown_actions_to: :write,
      warn_below_percent: 90,
      on_change: :reset
    ]

    name = start(policy: policy)
    assert Control.plans(name) == ["default", "free", "pro", "empty"]
    assert Tollgate.check(name, "agent-7", {:api, :write}) == {:allow, 19}
    assert Tollgate.check(name, "agent-7", {:api, :read}, cost: 2) == {:warn, 8}
    assert Tollgate.check(name, "agent-8", {:api, :write}, plan: :pro) == {:allow, 199}
    # The total counts reads alone.
    assert Tollgate.check(name, "agent-9", {:api, :write}, plan: "free") == {:allow, 19}
    assert Tollgate.check(name, "agent-9", {:api, :read}, plan: "free") == {:warn, 4}
    lanes = for action <- ["get", "list", "head", "post"], do: Actions.lane_for(name, :api, action)
    assert lanes == [{:api, :read}, {:api, :read}, {:api, :read}, {:api, :write}]
    ExUnit.CaptureLog.capture_log(fn -> assert Actions.lane_for(name, :api, "dance") == {:api, :write} end)
    assert %{total: 1, names: [{"api", "dance"}], not_listed: 0} = Actions.unknown(name)
    assert for(_ <- 1..3, do: Tollgate.Conduct.record_violation(name, "agent-7")) == [250, 4_000, 4_000]
    Control.set_override(name, "agent-7", :read, "30/minute")
    assert Tollgate.peek(name, "agent-7", {:api, :read}).remaining == 30
  end

  test "names and limits may hold anything that the limiter takes, and nothing else gets through" do
    for name <- [~s(a"b/c), "a\\b", "a.b/c.d", "a=b", "[x]", "#hash", "zwölf/grün", "'quoted'", "a/b/c", "🚦"] do
      instance = start(policy: [lanes: [{name, "7/minute"}], plans: [{name, [{name, "9/minute"}]}]])
      assert Tollgate.check(instance, "agent-7", name) == {:allow, 6}
      assert Tollgate.check(instance, "agent-8", Policy.pair(name), plan: name) == {:allow, 8}
      assert Control.plans(instance) == ["default", name]
    end

    Process.flag(:trap_exit, true)

    for lanes <- [
          [{"a b", "7/minute"}],
          [{"a\nb", "7/minute"}],
          [{"", "7/minute"}],
          [{<<255>>, "7/minute"}],
          [{"a", "7/minute\"\nb = \"8/minute"}],
          [{"a", <<255>>}],
          [{"a", "7/minute"}, {"a", "8/minute"}]
        ] do
      assert {:error, %ArgumentError{}} = Tollgate.start_link(name: :never, policy: [lanes: lanes])
    end
  end

  test "an error says what is wrong" do
    Process.flag(:trap_exit, true)

    for {policy, message} <- [
          {[lanes: [{"a", "7/fortnight"}]], "fortnight"},
          {[lanes: [{"a", "7/minute"}], plans: [{"p", [{"b", "1/s"}]}]], ~s("b")},
          {[lanes: [{"a", "7/minute"}], outside_total: [3]], "a name is a string or an atom"},
          {[lanes: [{"a", "7/minute"}], plans: [:free]], "a plan is a pair"},
          {[lanes: [{"a", "7/minute"}], actions: [{"a", "b"}]], "{channel, tier, names}"},
          {[lanes: [{"a", "7/minute"}], conduct: [curve_ms: [0]]], "curve_ms has to be"},
          {[lanes: [{"a", "7/minute"}], conduct: [curve_ms: List.duplicate(1, 16)]], "15"},
          {[lanes: [{"a", "7/minute"}], conduct: [abuse_violations: 64]], "1 to 63"},
          {[lanes: [{"a", "7/minute"}], conduct: [mercy: 1]], "conduct has the keys"},
          {{:toml, "lanes = 3"}, "lanes"},
          {:hubs, "hub"}
        ] do
      assert {:error, %ArgumentError{message: found}} = Tollgate.start_link(name: :never, policy: policy)
      assert found =~ message
    end
  end
end
