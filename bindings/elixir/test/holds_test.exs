defmodule Tollgate.HoldsTest do
  use Tollgate.Case, async: true

  alias Tollgate.Holds

  @policy [lanes: [{"ws/connections", "held 2"}, {"ws/messages", "10/minute"}]]

  defp left(name, agent \\ "agent-7"), do: Tollgate.peek(name, agent, {:ws, :connections}).remaining

  # A process that holds a slot until it gets a message.
  defp holder(name, agent \\ "agent-7") do
    test = self()

    pid =
      spawn(fn ->
        send(test, {self(), Tollgate.hold(name, agent, {:ws, :connections})})

        receive do
          :end -> :ok
          {:exit, reason} -> exit(reason)
        end
      end)

    assert_receive {^pid, verdict}
    {pid, verdict}
  end

  test "what was acquired is held until it is released, as often as it was acquired" do
    name = start(policy: @policy)
    assert Tollgate.hold(name, "agent-7", {:ws, :connections}, owner: nil) == {:allow, 1}
    assert Tollgate.hold(name, "agent-7", {:ws, :connections}, owner: nil) == {:warn, 0}
    Tollgate.advance_clock(name, 1_000_000)
    assert Tollgate.hold(name, "agent-7", {:ws, :connections}, owner: nil) == {:deny, :infinity}
    assert %{remaining: 1, capacity: 2} = Tollgate.release(name, "agent-7", {:ws, :connections}, owner: nil)
    assert %{remaining: 2} = Tollgate.release(name, "agent-7", {:ws, :connections}, owner: nil)
    assert Tollgate.release(name, "agent-7", {:ws, :connections}, owner: nil) == {:error, :not_held}
    assert left(name) == 2
  end

  test "a slot is given back when the process ends, however it ends" do
    name = start(policy: @policy)

    for how <- [:end, {:exit, :kill}, {:exit, :crash}] do
      {pid, {:allow, 1}} = holder(name)
      assert left(name) == 1
      if how == {:exit, :kill}, do: Process.exit(pid, :kill), else: send(pid, how)
      eventually(fn -> left(name) == 2 end)
    end
  end

  test "each process gives back its own" do
    name = start(policy: @policy)
    {first, {:allow, 1}} = holder(name)
    {second, {:warn, 0}} = holder(name)
    {_third, {:deny, :infinity}} = holder(name)
    assert Tollgate.release(name, "agent-7", {:ws, :connections}) == {:error, :not_held}
    assert Tollgate.release(name, "agent-8", {:ws, :connections}, owner: first) == {:error, :not_held}
    assert %{remaining: 1} = Tollgate.release(name, "agent-7", {:ws, :connections}, owner: first)
    # Its end gives back nothing more: the slot that is held is the second's.
    monitor = Process.monitor(first)
    send(first, :end)
    assert_receive {:DOWN, ^monitor, :process, ^first, _}
    :sys.get_state(Holds)
    assert left(name) == 1
    send(second, :end)
    eventually(fn -> left(name) == 2 end)
  end

  test "a slot may belong to another process" do
    name = start(policy: @policy)
    owner = spawn(fn -> Process.sleep(:infinity) end)
    assert Tollgate.hold(name, "agent-7", {:ws, :connections}, owner: owner) == {:allow, 1}
    Process.exit(owner, :kill)
    eventually(fn -> left(name) == 2 end)
    # For one that has ended already it is given back at once.
    assert Tollgate.hold(name, "agent-7", {:ws, :connections}, owner: owner) == {:allow, 1}
    eventually(fn -> left(name) == 2 end)
  end

  test "an exempt agent holds nothing, and gives nothing back" do
    name = start(policy: @policy)
    :ok = Tollgate.Control.exempt(name, "agent-7")
    {pid, {:allow, :exempt}} = holder(name)
    assert Tollgate.hold(name, "agent-7", {:ws, :connections}) == {:allow, :exempt}
    assert Tollgate.release(name, "agent-7", {:ws, :connections}) == :exempt
    :ok = Tollgate.Control.unexempt(name, "agent-7")
    {_, {:allow, 1}} = holder(name)
    monitor = Process.monitor(pid)
    send(pid, :end)
    assert_receive {:DOWN, ^monitor, :process, ^pid, _}
    :sys.get_state(Holds)
    assert left(name) == 1
  end

  test "invalid arguments raise, and the watcher goes on" do
    name = start(policy: @policy)
    watcher = Process.whereis(Holds)
    assert_raise ArgumentError, ~r/of a kind/, fn -> Tollgate.hold(name, "agent-7", {:ws, :messages}) end
    assert_raise ArgumentError, ~r/of a kind/, fn -> Tollgate.hold(name, "agent-7", {:ws, :messages}, owner: nil) end

    assert_raise ArgumentError, ~r/of a kind/, fn ->
      Tollgate.release(name, "agent-7", {:ws, :messages}, owner: nil)
    end

    assert_raise ArgumentError, ~r/no lane/, fn -> Tollgate.hold(name, "agent-7", {:ws, :nothing}) end
    assert_raise ArgumentError, ~r/1 to 256/, fn -> Tollgate.hold(name, "", {:ws, :connections}) end
    assert_raise ArgumentError, ~r/owner/, fn -> Tollgate.hold(name, "agent-7", {:ws, :connections}, owner: :me) end
    assert_raise ArgumentError, ~r/no instance/, fn -> Tollgate.hold(:nobody, "agent-7", {:ws, :connections}) end
    assert Process.whereis(Holds) == watcher
    assert left(name) == 2
  end

  test "an instance that is stopped takes its slots along" do
    name = start(policy: @policy)
    {pid, {:allow, 1}} = holder(name)
    stop_supervised!({Tollgate, name})
    :sys.get_state(Holds)
    assert :ets.match(Holds, {:_, {:_, name, :_, :_, :_, :_}}) == []
    start_supervised!({Tollgate, name: name, clock: :manual, policy: @policy, telemetry: :off})
    {_, {:allow, 1}} = holder(name)
    monitor = Process.monitor(pid)
    send(pid, :end)
    assert_receive {:DOWN, ^monitor, :process, ^pid, _}
    :sys.get_state(Holds)
    assert left(name) == 1
  end
end

defmodule Tollgate.HoldsCrashTest do
  # Not beside others: it takes their watcher away for a moment.
  use Tollgate.Case, async: false

  test "a watcher that crashed is followed by one that knows the same" do
    name = start(policy: [lanes: [{"ws/connections", "held 3"}]])
    owners = for _ <- 1..2, do: spawn(fn -> Process.sleep(:infinity) end)
    for owner <- owners, do: Tollgate.hold(name, "agent-7", {:ws, :connections}, owner: owner)
    watcher = Process.whereis(Tollgate.Holds)
    # One ends while nobody watches: the watcher does not get to see it before it is killed.
    :sys.suspend(watcher)
    Process.exit(hd(owners), :kill)
    Process.exit(watcher, :kill)
    left = fn -> Tollgate.peek(name, "agent-7", {:ws, :connections}).remaining end
    eventually(fn -> left.() == 2 end)
    Process.exit(List.last(owners), :kill)
    eventually(fn -> left.() == 3 end)
  end

  test "the slot of one owner is found without a look at those of others" do
    name = start(agents: 10_000, policy: [lanes: [{"ws/connections", "held 3"}]])
    owner = spawn_link(fn -> Process.sleep(:infinity) end)
    for at <- 1..2_000, do: Tollgate.hold(name, "agent-#{at}", {:ws, :connections}, owner: owner)
    holder = Process.whereis(Tollgate.Holds)

    cost = fn agent ->
      Tollgate.hold(name, agent, {:ws, :connections}, owner: owner)
      {:reductions, before} = Process.info(holder, :reductions)
      %{remaining: 3} = Tollgate.release(name, agent, {:ws, :connections}, owner: owner)
      {:reductions, later} = Process.info(holder, :reductions)
      later - before
    end

    # A scan of 2,000 holds is some thousand reductions.
    assert Enum.min(for at <- 1..20, do: cost.("other-#{at}")) < 400
    assert Tollgate.release(name, "other-1", {:ws, :connections}, owner: owner) == {:error, :not_held}
  end
end
