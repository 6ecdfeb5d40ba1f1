defmodule Tollgate.HubTest do
  use Tollgate.Case, async: true

  import ExUnit.CaptureLog

  alias Tollgate.Hub

  doctest Hub
  doctest Tollgate.Actions

  # The examples share the default instance.
  setup context do
    if context.test_type == :doctest, do: Tollgate.forget(Tollgate, "agent-1")
    :ok
  end

  @ws [
    light: ~w(ping list_agents list_channels status channel_history),
    normal: ~w(message channel_publish channel_subscribe channel_unsubscribe task_accepted task_progress task_complete
               task_failed task_recovering),
    heavy: ~w(identify channel_create task_submit)
  ]
  @http [
    light: ~w(get_agents get_channels get_tasks get_metrics get_health get_mailbox get_schemas get_dashboard_state),
    normal: ~w(post_message post_channel_publish post_mailbox_ack get_messages get_task_detail get_channel_info),
    heavy: ~w(post_task post_channel post_admin_push_task post_onboard_register channel_create task_submit)
  ]

  test "every action of the hub has its tier" do
    name = start()

    assert capture_log(fn ->
             for {tier, actions} <- @ws, action <- actions, do: assert(Hub.ws_tier(name, action) == tier)
             for {tier, actions} <- @http, action <- actions, do: assert(Hub.http_tier(name, action) == tier)
           end) == ""
  end

  test "an unknown action is normal, and is logged once" do
    name = start()
    log = capture_log(fn -> assert Hub.ws_tier(name, "dance") == :normal end)
    assert log =~ "dance" and log =~ "ws" and log =~ "normal"
    assert capture_log(fn -> assert Hub.ws_tier(name, "dance") == :normal end) == ""
    assert capture_log(fn -> assert Hub.http_tier(name, "dance") == :normal end) =~ "dance"
  end

  test "what a client calls an action may be anything" do
    name = start()

    capture_log(fn ->
      for action <- ["", <<255, 254>>, String.duplicate("x", 2_000_000), String.duplicate("ü", 200), "a\nb"] do
        assert Hub.ws_tier(name, action) == :normal
      end
    end)

    capture_log(fn -> assert Hub.ws_tier(name, 3) == :normal end)
    bare = start(policy: [lanes: [{"api/read", "1/s"}]])
    assert_raise ArgumentError, ~r/classifies no actions/, fn -> Hub.ws_tier(bare, "ping") end
  end

  test "the limits of the tiers are those of the contract" do
    name = start()
    assert Hub.defaults(name, :light) == {120_000, 2.0}
    assert Hub.defaults(name, :normal) == {60_000, 1.0}
    assert Hub.defaults(name, :heavy) == {10_000, 10_000 / 60_000}
    assert_raise ArgumentError, fn -> Hub.defaults(name, :enormous) end
  end

  test "a limit's numbers are read as the limiter writes them" do
    for {limit, numbers} <- [
          {"3/5min", {3, 3, 300_000_000_000}},
          {"100/minute burst 150", {150, 100, 60_000_000_000}},
          {"5000000/day", {5_000_000, 5_000_000, 86_400_000_000_000}},
          {"7/250ms burst 1", {1, 7, 250_000_000}},
          {"1/90s", {1, 1, 90_000_000_000}},
          {"window 100/minute", {100, 100, 60_000_000_000}},
          {"exact 5/5min", {5, 5, 300_000_000_000}},
          {"budget 10000/day", {10_000, 10_000, 86_400_000_000_000}},
          {"budget 10000/day zone +02:00", {10_000, 10_000, 86_400_000_000_000}},
          {"held 3", {3, 0, 1}},
          {"deny", {0, 0, 1}}
        ] do
      name = start(policy: [lanes: [{"a/b", limit}]])
      assert Tollgate.Control.limit_of(name, "agent-7", {:a, :b}) == limit
      assert Tollgate.Hub.numbers(limit) == numbers
      assert Tollgate.Hub.capacity(name, "agent-7", :a, :b) == elem(numbers, 0)
    end
  end

  test "an agent may be what a hub has at hand, and mistakes of the hub are ArgumentErrors" do
    name = start()
    long = String.duplicate("x", 300)

    for agent <- [7, :worker, long, ""] do
      assert Hub.check(name, agent, :ws, :heavy) == {:allow, 9}
      assert Hub.capacity(name, agent, :ws, :heavy) == 10
      assert {10_000, _} = Hub.get_limits(name, agent, :ws, :heavy)
      assert Hub.record_violation(name, agent) == 1_000
      assert Hub.rate_limited?(name, agent)
      assert Hub.reset_violations(name, agent) == :ok
      refute Hub.rate_limited?(name, agent)
      assert Hub.delete_agent_buckets(name, agent) == :ok
      assert Hub.check(name, agent, :ws, :heavy) == {:allow, 9}
      refute Hub.exempt?(name, agent)
    end

    assert Tollgate.peek(name, "7", {:ws, :heavy}).remaining == 9
    assert Hub.update_whitelist(name, [7, :worker]) == :ok
    assert Hub.whitelist(name) == ["7", "dashboard", "worker"]
    assert {Hub.check(name, 7, :ws, :heavy), Hub.capacity(name, 7, :ws, :heavy)} == {{:allow, :exempt}, :infinity}
    assert Hub.get_limits(name, 7, :ws, :heavy) == :exempt

    for wrong <- [
          fn -> Hub.check(name, {:not, "an id"}, :ws, :heavy) end,
          fn -> Hub.check(name, nil, :ws, :heavy) end,
          fn -> Hub.check(name, "a", :ws, :enormous) end,
          fn -> Hub.check(name, "a", "ws", "heavy") end,
          fn -> Hub.capacity(name, "a", :smtp, :heavy) end,
          fn -> Hub.get_limits(name, "a", :smtp, :heavy) end,
          fn -> Hub.record_violation(name, 1.5) end,
          fn -> Hub.rate_limited?(name, []) end,
          fn -> Hub.reset_violations(name, %{}) end,
          fn -> Hub.exempt?(name, <<1::3>>) end,
          fn -> Hub.delete_agent_buckets(name, self()) end,
          fn -> Hub.update_whitelist(name, [1.5]) end,
          fn -> Hub.defaults(name, 5) end,
          fn -> Hub.check(:nobody, "a", :ws, :heavy) end
        ] do
      assert_raise ArgumentError, wrong
    end
  end
end
