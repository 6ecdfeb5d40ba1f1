defmodule Tollgate.SightTest do
  use Tollgate.Case, async: true

  import ExUnit.CaptureLog

  alias Tollgate.{Events, Native}

  test "verdicts are counted by lane" do
    name = start(sight: true)
    drain(name, "agent-7", :ws, :heavy, 12)
    Tollgate.check_many(name, [{"agent-8", :http, :light}, {"agent-8", :http, :light}])
    Tollgate.check(name, "dashboard", :ws, :normal)
    for _ <- 1..3, do: Tollgate.admit(name, "agent-7", :ws, :heavy)
    seen = Tollgate.snapshot(name)
    assert seen.counting
    assert %{allowed: 10, warned: 2, denied: 5, exempt: 1, violations: 3, agents_exempt: 1} = seen
    assert seen.lanes[{:ws, :heavy}] == %{allowed: 8, warned: 2, denied: 5, exempt: 0}
    assert seen.lanes[{:http, :light}] == %{allowed: 2, warned: 0, denied: 0, exempt: 0}
    assert seen.lanes[{:ws, :normal}].exempt == 1
    assert map_size(seen.lanes) == 6
  end

  test "without it nothing is counted, and what it holds is told all the same" do
    name = start()
    drain(name, "agent-7", :ws, :heavy, 12)
    assert %{counting: false, allowed: 0, denied: 0, agents: 1} = Tollgate.snapshot(name)
    assert Tollgate.top_offenders(name, 3) == %{violations: 0, agents: []}
  end

  test "the worst offenders come first" do
    name = start(sight: true)
    for {agent, times} <- [{"a", 2}, {<<255>>, 7}, {"c", 4}], _ <- 1..times, do: Tollgate.record_violation(name, agent)

    assert %{violations: 13, agents: [%{agent: <<255>>, violations: 7}, %{agent: "c"}]} =
             Tollgate.top_offenders(name, 2)

    Tollgate.advance_clock(name, 2 * 3_600_000)
    assert %{violations: 0} = Tollgate.top_offenders(name, 2)
    assert_raise ArgumentError, fn -> Tollgate.top_offenders(name, -1) end
  end

  test "what the limiter has to tell arrives as messages" do
    name = start(sight: true, agents: 1, on_full: :deny)
    Events.subscribe(name, [:saturated, :unknown_action])
    for at <- 1..1_000, do: Tollgate.check(name, "agent-#{at}", :ws, :heavy)
    capture_log(fn -> Tollgate.Config.ws_tier(name, "dance") end)
    send(name, :look)
    assert_receive {:tollgate, ^name, :saturated, %{refused: refused}} when refused > 0
    assert_receive {:tollgate, ^name, :unknown_action, %{channel: "ws", action: "dance"}}
    refute_received {:tollgate, _, _, _}
  end

  test "a flood of denials is few lines of a log" do
    name = start(log: true)
    {reference, _} = Tollgate.Instance.find(name)
    lines = fn act -> Regex.scan(~r/(?:INFO|THROTTLE|SUMMARY): .*/, capture_log(act)) |> List.flatten() end
    # Messages to the owner are worked through before it answers.
    settle = fn -> :sys.get_state(name) end

    assert ["INFO: Rate limit hit by agent agent\\n7"] =
             lines.(fn ->
               for _ <- 1..48, do: Tollgate.record_violation(name, "agent\n7")
               settle.()
             end)

    Tollgate.advance_clock(name, 60_000)

    assert ["THROTTLE: Suppressed 47 similar messages from agent\\n7 in last minute"] =
             lines.(fn ->
               send(name, :look)
               settle.()
             end)

    Tollgate.advance_clock(name, 240_000)

    assert ["SUMMARY: LOG THROTTLE: Suppressed 47 messages | Top sources: agent\\n7: 47"] =
             lines.(fn ->
               send(name, :look)
               settle.()
             end)

    assert Native.log_due(reference, Native.now(reference)) == []
  end

  test "options that make no sense are refused" do
    assert_raise ArgumentError, fn -> Tollgate.start_link(sight: :yes) end
    assert_raise ArgumentError, fn -> Tollgate.start_link(log: 1) end
  end
end
