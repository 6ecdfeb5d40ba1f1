defmodule Tollgate.AgentViewTest do
  use Tollgate.Case, async: true

  test "shows every lane, and the one that is nearest to its limit" do
    name = start()
    drain(name, "agent-7", {:ws, :light}, 60)
    drain(name, "agent-7", {:http, :heavy}, 8)
    drain(name, "agent-7", {:http, :normal}, 49)
    view = Tollgate.Observe.agent(name, "agent-7")

    assert for(lane <- view.lanes, do: {lane.channel, lane.tier, lane.remaining, lane.level}) == [
             {:ws, :light, 60, :yellow},
             {:ws, :normal, 60, :green},
             {:ws, :heavy, 10, :green},
             {:http, :light, 120, :green},
             {:http, :normal, 11, :red},
             {:http, :heavy, 2, :yellow}
           ]

    assert %{channel: :http, tier: :normal, limit: "60/minute", override: false, full_in_ms: 49_000} = view.dominant
    assert %{agent: "agent-7", plan: nil, exempt: false, rate_limited: false, in_window: 0} = view
    # Looking has charged nothing.
    assert Tollgate.Observe.agent(name, "agent-7") == view
  end

  test "of lanes that are used alike the first is dominant, and one that denies everything never is" do
    name = start(policy: [lanes: [{"a/never", "deny"}, {"a/one", "10/minute"}, {"a/two", "20/minute"}]])
    view = Tollgate.Observe.agent(name, "agent-7")
    assert view.dominant.tier == :one
    assert %{used_percent: 100.0, level: :red} = hd(view.lanes)
    drain(name, "agent-7", {:a, :two}, 1)
    assert Tollgate.Observe.agent(name, "agent-7").dominant.tier == :two
  end

  test "shows what was decided, and how it behaves" do
    name = start()
    :ok = Tollgate.Control.set_override(name, "agent-7", "ws/heavy", "20/minute")
    :ok = Tollgate.Control.assign(name, "agent-7", "unauthenticated")
    for _ <- 1..3, do: Tollgate.Conduct.record_violation(name, "agent-7")
    view = Tollgate.Observe.agent(name, "agent-7")
    assert %{plan: "unauthenticated", rate_limited: true, in_window: 3, in_a_row: 3} = view
    assert [%{channel: :ws, tier: :heavy, limit: "20/minute", capacity: 20}] = Enum.filter(view.lanes, & &1.override)
    assert %{exempt: true, lanes: [], dominant: nil, rate_limited: false} = Tollgate.Observe.agent(name, "dashboard")
    assert_raise ArgumentError, fn -> Tollgate.Observe.agent(name, "") end
  end
end
