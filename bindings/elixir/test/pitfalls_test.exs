defmodule Tollgate.PitfallsTest do
  # What goes wrong with limiters on a hub, one test for each.
  use Tollgate.Case, async: true

  alias Tollgate.{Native, Socket}

  test "a clock that steps back makes nobody richer" do
    name = start()
    {reference, _} = Tollgate.Instance.find(name)
    Tollgate.advance_clock(name, 100_000)
    drain(name, "agent-7", {:ws, :heavy}, 10)

    for now_ms <- [0, 50_000, 99_999, 100_000, 30, 105_999] do
      :ok = Native.set_clock(reference, now_ms * 1_000_000)
      assert {:deny, _} = Tollgate.check(name, "agent-7", {:ws, :heavy})
    end

    :ok = Native.set_clock(reference, 106_000_000_000)
    assert {:warn, 0} = Tollgate.check(name, "agent-7", {:ws, :heavy})
  end

  test "an instant in the past does not refill either" do
    name = start()
    now = 100_000_000_000
    for _ <- 1..10, do: Tollgate.check(name, "agent-7", {:ws, :heavy}, at: now)
    assert {:deny, _} = Tollgate.check(name, "agent-7", {:ws, :heavy}, at: now)
    assert {:deny, _} = Tollgate.check(name, "agent-7", {:ws, :heavy}, at: 0)
    assert {:deny, _} = Tollgate.check(name, "agent-7", {:ws, :heavy}, at: now)
  end

  # The update and the first contact race in Tollgate.StormTest.

  test "no process sees an old limit after a change" do
    name = start()
    test = self()

    others =
      for _ <- 1..8 do
        spawn_link(fn ->
          for _ <- Stream.cycle([:ok]) do
            receive do
              :ask -> send(test, {:capacity, Tollgate.Hub.capacity(name, "agent-7", :http, :heavy)})
            end
          end
        end)
      end

    for capacity <- 1..200 do
      :ok = Tollgate.Control.set_override(name, "agent-7", :heavy, "#{capacity}/minute")
      for other <- others, do: send(other, :ask)
      for _ <- others, do: assert_receive({:capacity, ^capacity})
    end
  end

  test "identifying is heavy, and not limited while nobody is identified" do
    name = start()
    assert Tollgate.Hub.ws_tier(name, "identify") == :heavy
    for _ <- 1..100, do: assert(Socket.message(name, nil, "identify") == :allow)
  end

  test "the dashboard is never limited" do
    name = start()
    for _ <- 1..1_000, do: assert({:allow, :exempt} == Tollgate.check(name, "dashboard", {:http, :heavy}))
  end

  # Going to a dirty scheduler takes the process off its own, which a trace shows.
  test "a check stays on its scheduler, and what walks all records leaves it" do
    name = start()
    test = self()

    for {call, leaves} <- [
          {fn -> Tollgate.check(name, "agent-7", {:ws, :light}) end, false},
          {fn -> Tollgate.check(name, "agent-7", {:ws, :light}, cost: 2) end, false},
          {fn -> Tollgate.check(name, "agent-7", {:ws, :light}, counted: true) end, false},
          {fn -> Tollgate.check_many(name, [{"agent-7", {:ws, :light}}]) end, false},
          {fn -> Tollgate.Conduct.rate_limited?(name, "agent-7") end, false},
          {fn -> Tollgate.Observe.snapshot(name) end, true}
        ] do
      worker =
        spawn_link(fn ->
          receive do: (:go -> for(_ <- 1..1_000, do: call.()))
          send(test, :done)
        end)

      :erlang.trace(worker, true, [:running])
      send(worker, :go)
      assert_receive :done
      delivered = :erlang.trace_delivered(worker)
      assert_receive {:trace_delivered, ^worker, ^delivered}
      outs = count_outs(worker, 0)
      # A process that has had its time leaves too, now and then.
      assert if(leaves, do: outs >= 1_000, else: outs < 300), "#{inspect(call)} left its scheduler #{outs} times"
    end
  end

  defp count_outs(worker, count) do
    receive do
      {:trace, ^worker, :out, _} -> count_outs(worker, count + 1)
      {:trace, ^worker, _, _} -> count_outs(worker, count)
    after
      0 -> count
    end
  end
end
