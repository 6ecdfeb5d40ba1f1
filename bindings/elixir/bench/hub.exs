# What a message hub pays for a message and a request, beside its own code on ETS:
#
#   * admit: a check whose denial counts as a violation;
#   * a WebSocket message: its type to a tier, the check, and the frame if it warns or denies;
#   * an HTTP request through the plug: the agent, the check, the headers, and the response if it denies;
#   * a flood of denials with `log: true`: how long the owner's queue gets, and how long a control call takes.
#
# Numbers are nanoseconds of CPU time a call, as in check.exs, which runs this file. `Bench.HubCode` does what the hub's
# documents describe, with its own token bucket, backoff and JSON by string interpolation.

defmodule Bench.HubCode do
  @moduledoc "What a hub writes by itself: the bucket of Bench.Reference, its classification, backoff and responses."

  alias Bench.Reference

  @ws_light ~w(ping list_agents list_channels status channel_history)
  @ws_heavy ~w(identify)

  def new, do: :ets.new(:bench_violations, [:named_table, :public, :set])

  defp tier(type) when type in @ws_light, do: :light
  defp tier(type) when type in @ws_heavy, do: :heavy
  defp tier(_), do: :normal

  def admit(agent, tier) do
    case Reference.check(agent, :ws, tier) do
      {:deny, wait} -> {:deny, max(wait, violation(agent))}
      allowed -> allowed
    end
  end

  defp violation(agent) do
    now = System.monotonic_time(:millisecond)

    {window, start, row} =
      case :ets.lookup(:bench_violations, agent) do
        [{_, count, start, row, last}] when now - last < 60_000 -> {count + 1, start, row + 1}
        _ -> {1, now, 1}
      end

    :ets.insert(:bench_violations, {agent, window, start, row, now})
    elem({1_000, 2_000, 5_000, 10_000, 30_000}, min(row, 5) - 1)
  end

  def message(agent, type) do
    tier = tier(type)

    case admit(agent, tier) do
      {:deny, wait} -> {:deny, ~s({"type":"rate_limited","retry_after_ms":#{wait},"tier":"#{tier}"})}
      {:warn, left} -> {:warn, ~s({"type":"rate_limit_warning","tier":"#{tier}","remaining":#{left},"capacity":60})}
      _ -> :allow
    end
  end
end

defmodule Bench.Hub do
  alias Bench.HubCode
  alias Tollgate.Socket

  @limiter Bench.HubLimiter

  def start do
    HubCode.new()

    policy = [
      lanes: [
        {"ws/normal", "1000000000/second burst 1000000000"},
        {"ws/heavy", "1/day"},
        {"http/normal", "1000000000/second burst 1000000000"},
        {"http/heavy", "1/day"}
      ],
      actions: [{"ws", "normal", ["message"]}, {"ws", "heavy", ["identify"]}],
      unknown_actions_to: "normal",
      conduct: [curve_ms: [1_000, 2_000, 5_000, 10_000, 30_000], every_denial: true]
    ]

    {:ok, _} = Tollgate.start_link(name: @limiter, policy: policy, agents: 100_000, telemetry: :off)
  end

  # Rows of {title, ours, the hub's own}, each a function of the agent; bars as {most, part of the hub's own | nil}.
  def rows do
    [
      {"admit, allowed", &Tollgate.check(@limiter, &1, {:ws, :normal}, counted: true), &HubCode.admit(&1, :normal),
       nil},
      {"admit, denied", &Tollgate.check(@limiter, &1, {:ws, :heavy}, counted: true), &HubCode.admit(&1, :heavy), 500},
      {"WebSocket message, allowed", &Socket.message(@limiter, &1, "message"), &HubCode.message(&1, "message"), 400},
      {"WebSocket message, denied", &Socket.message(@limiter, &1, "identify"), &HubCode.message(&1, "identify"), 1_000}
    ] ++ plugs()
  end

  # With Plug itself if the project has it, otherwise with the stand-in of the tests, which has the same struct.
  defp plugs do
    unless Code.ensure_loaded?(Tollgate.Plug) do
      Code.require_file("../test/support/plug_conn.ex", __DIR__)
      Code.compile_file("../lib/tollgate/plug.ex", __DIR__)
    end

    conn = struct(Plug.Conn, remote_ip: {127, 0, 0, 1}, request_path: "/api/tasks")
    plug = Tollgate.Plug
    allowed = plug.init(instance: @limiter, tier: :normal)
    bare = plug.init(instance: @limiter, tier: :normal, headers: false)
    denied = plug.init(instance: @limiter, tier: :heavy)
    of = &%{conn | assigns: %{agent_id: &1}}

    [
      {"HTTP request, allowed, with headers", &plug.call(of.(&1), allowed), nil, 1_200},
      {"HTTP request, allowed, without headers", &plug.call(of.(&1), bare), nil, nil},
      {"HTTP request, denied", &plug.call(of.(&1), denied), nil, nil}
    ]
  end

  # Denials from all schedulers for a while, each logged if its line is due: the longest queue of the owner, and the
  # longest control call, in milliseconds, beside the longest call of a process that has nothing to do.
  def flood(seconds) do
    # Lines that are due are made, and nobody wants to read them here.
    Logger.put_module_level(Tollgate.Log, :none)
    {:ok, owner} = Tollgate.start_link(name: Bench.Flooded, policy: :hub, agents: 1_000, log: true, telemetry: :off)
    ending = System.monotonic_time(:millisecond) + seconds * 1_000
    flood = fn agent -> deny(agent, ending, 0) end
    tasks = for at <- 1..8, do: Task.async(fn -> flood.("agent-#{at}") end)
    {:ok, idle} = Agent.start_link(fn -> :idle end)
    {longest, slowest, echo} = watch(owner, idle, ending, {0, 0, 0})
    denied = tasks |> Task.await_many(:infinity) |> Enum.sum()
    GenServer.stop(owner)
    Logger.delete_module_level(Tollgate.Log)
    {denied, longest, slowest, echo}
  end

  defp deny(agent, ending, denied) do
    for _ <- 1..1_000, do: Tollgate.check(Bench.Flooded, agent, {:ws, :heavy}, counted: true)
    if System.monotonic_time(:millisecond) < ending, do: deny(agent, ending, denied + 1_000), else: denied + 1_000
  end

  defp watch(owner, idle, ending, {longest, slowest, echo}) do
    {:message_queue_len, length} = Process.info(owner, :message_queue_len)
    control = fn -> Tollgate.Control.set_override(Bench.Flooded, "someone", :heavy, "100/minute") end
    {micros, :ok} = :timer.tc(control)
    {idle_micros, :idle} = :timer.tc(fn -> Agent.get(idle, & &1) end)
    Process.sleep(20)
    seen = {max(longest, length), max(slowest, div(micros, 1_000)), max(echo, div(idle_micros, 1_000))}
    if System.monotonic_time(:millisecond) < ending, do: watch(owner, idle, ending, seen), else: seen
  end
end
