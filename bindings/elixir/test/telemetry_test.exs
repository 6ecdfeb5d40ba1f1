defmodule Tollgate.TelemetryTest do
  # Against a stand-in for :telemetry: test/support/telemetry.ex.
  use Tollgate.Case, async: true

  defp listen(prefix) do
    for event <- [:check, :violation] do
      :telemetry.attach({prefix, event}, prefix ++ [:rate_limit, event], &forward/4, self())
    end
  end

  defp forward(event, measurements, metadata, listener) do
    send(listener, {List.last(event), measurements, metadata})
  end

  defp start_reporting(options) do
    prefix = [:"prefix#{System.unique_integer([:positive])}"]
    listen(prefix)
    start([telemetry_prefix: prefix] ++ options)
  end

  test "the hub reports every check" do
    name = start_reporting(telemetry: nil)
    Tollgate.check(name, "agent-7", {:ws, :heavy})
    metadata = %{agent_id: "agent-7", channel: :ws, tier: :heavy}
    allow = Map.put(metadata, :result, :allow)
    assert_received {:check, %{tokens_remaining: 9}, ^allow}
    drain(name, "agent-7", {:ws, :heavy}, 8)
    warn = Map.put(metadata, :result, :warn)
    assert_received {:check, %{tokens_remaining: 1}, ^warn}
    drain(name, "agent-7", {:ws, :heavy}, 2)
    deny = Map.put(metadata, :result, :deny)
    assert_received {:check, %{tokens_remaining: 0}, ^deny}
    Tollgate.check(name, "dashboard", {:ws, :heavy}, cost: 2)
    assert_received {:check, measurements, %{agent_id: "dashboard", result: :exempt}} when measurements == %{}
    Tollgate.check_many(name, [{"agent-8", {:http, :light}}, {"agent-9", {:http, :light}, cost: 2}])
    assert_received {:check, %{tokens_remaining: 119}, %{agent_id: "agent-8"}}
    assert_received {:check, %{tokens_remaining: 118}, %{agent_id: "agent-9"}}
    Tollgate.check(name, "agent-8", {:http, :light}, counted: true)
    assert_received {:check, %{tokens_remaining: 118}, %{agent_id: "agent-8"}}
  end

  test "others report what is notable" do
    name = start_reporting(telemetry: nil, policy: [lanes: [{"ws/heavy", "10/minute"}]])
    drain(name, "agent-7", {:ws, :heavy}, 8)
    refute_received {:check, _, _}
    Tollgate.check(name, "agent-7", {:ws, :heavy})
    assert_received {:check, %{tokens_remaining: 1}, %{result: :warn}}
  end

  test "violations are reported, with the lane of a denial" do
    name = start_reporting(telemetry: :all)
    Tollgate.Conduct.record_violation(name, "agent-7")

    assert_received {:violation, %{retry_after_ms: 1_000, consecutive: 1}, metadata}
                    when metadata == %{agent_id: "agent-7"}

    for _ <- 1..11, do: Tollgate.check(name, "agent-7", {:ws, :heavy}, counted: true)

    assert_received {:violation, %{retry_after_ms: 6_000, consecutive: 2},
                     %{agent_id: "agent-7", channel: :ws, tier: :heavy}}
  end

  test "off is off" do
    name = start_reporting(telemetry: :off)
    for _ <- 1..11, do: Tollgate.check(name, "agent-7", {:ws, :heavy}, counted: true)
    Tollgate.check(name, "agent-7", {:ws, :heavy})
    refute_received {_, _, _}
    assert {_, nil} = Tollgate.Instance.find(name)
  end

  test "invalid options are refused" do
    assert_raise ArgumentError, fn -> Tollgate.start_link(telemetry: :loud) end
    assert_raise ArgumentError, fn -> Tollgate.start_link(telemetry_prefix: "tollgate") end
  end
end
