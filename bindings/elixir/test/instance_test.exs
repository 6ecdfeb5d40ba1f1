defmodule Tollgate.InstanceTest do
  use Tollgate.Case, async: true

  import ExUnit.CaptureLog

  test "the application starts a default instance with the policy of the hub" do
    assert Tollgate.check(Tollgate, "of the default instance", {:ws, :normal}) == {:allow, 59}
    assert Tollgate.Observe.snapshot(Tollgate).records > 100_000
  end

  test "two instances side by side know nothing of each other" do
    {one, other} = {start(), start(policy: [lanes: [{"ws/light", "2/minute"}]])}
    assert Tollgate.check(one, "agent-7", {:ws, :light}) == {:allow, 119}
    assert Tollgate.check(other, "agent-7", {:ws, :light}) == {:allow, 1}
    stop_supervised!({Tollgate, other})
    assert Tollgate.check(one, "agent-7", {:ws, :light}) == {:allow, 118}
    assert_raise ArgumentError, ~r/there is no instance/, fn -> Tollgate.check(other, "agent-7", {:ws, :light}) end
  end

  test "buckets and checks survive a crash of the owner" do
    name = start()
    drain(name, "agent-7", {:ws, :heavy}, 10)
    owner = Process.whereis(name)
    Process.exit(owner, :kill)
    assert {:deny, 6_000} = Tollgate.check(name, "agent-7", {:ws, :heavy})
    eventually(fn -> Process.whereis(name) not in [nil, owner] end)
    assert {:deny, 6_000} = Tollgate.check(name, "agent-7", {:ws, :heavy})
    Tollgate.advance_clock(name, 6_000)
    assert {:warn, 0} = Tollgate.check(name, "agent-7", {:ws, :heavy})
  end

  test "an owner that comes back with other options begins anew" do
    name = start()
    drain(name, "agent-7", {:ws, :heavy}, 10)
    stop_brutally(name)
    start_supervised!({Tollgate, name: name, clock: :manual, agents: 2_000})
    assert {:allow, 9} = Tollgate.check(name, "agent-7", {:ws, :heavy})
  end

  test "an instance that was stopped begins anew" do
    options = [name: __MODULE__.Stopped, clock: :manual]
    start_supervised!({Tollgate, options})
    drain(__MODULE__.Stopped, "agent-7", {:ws, :heavy}, 10)
    stop_supervised!({Tollgate, __MODULE__.Stopped})
    start_supervised!({Tollgate, options})
    assert {:allow, 9} = Tollgate.check(__MODULE__.Stopped, "agent-7", {:ws, :heavy})
  end

  test "a name is taken once" do
    name = start()
    pid = Process.whereis(name)
    assert {:error, {:already_started, ^pid}} = Tollgate.start_link(name: name)
  end

  test "invalid options are reported, whatever starts the instance" do
    Process.flag(:trap_exit, true)

    for {options, message} <- [
          {[agents: 0], "agents has to be"},
          {[agents: -1], "agents has to be"},
          {[agents: 2 ** 40], "from 1 to 1073741824"},
          {[clock: :sun], "clock has to be :automatic"},
          {[on_full: :explode], "on_full has to be"},
          {[id_hash: :md5], "id_hash has to be"},
          {[prefault: 1], "prefault has to be true or false, got: 1"},
          {[prefault: nil], "prefault has to be true or false, got: nil"},
          {[policy: [lanes: [{"a", "9/fortnight"}]]], "fortnight"},
          {[policy: [lanes: []]], "lane"},
          {[policy: [lanes: [{"a", 3}]]], "a lane is a pair"},
          {[policy: [lanes: [{"a", "1/s"}], warn_below_percent: 101]], "0 to 100"},
          {[policy: [limits: []]], "limits"},
          {[policy: "hub"], "a policy is"}
        ] do
      capture_log(fn ->
        assert {:error, %ArgumentError{message: found}} = Tollgate.start_link([name: :never] ++ options)
        assert found =~ message
      end)
    end

    for options <- [[colour: 1], [name: "x"], [sweep_every_ms: 0], [retry_after: :days], [:hub], :hub] do
      assert_raise ArgumentError, fn -> Tollgate.start_link(options) end
    end

    assert_raise ArgumentError, fn -> Tollgate.check(:never, "a", {:ws, :light}) end
  end

  test "a name under which somebody else keeps something is refused" do
    Process.flag(:trap_exit, true)
    :persistent_term.put(__MODULE__.Theirs, :theirs)
    assert {:error, %ArgumentError{message: message}} = Tollgate.start_link(name: __MODULE__.Theirs)
    assert message =~ "choose another name"
    assert :persistent_term.get(__MODULE__.Theirs) == :theirs
  end

  test "idle agents are swept by and by" do
    name = start(sweep_every_ms: 1, sweep_idle_ms: 60_000)
    Tollgate.check(name, "agent-7", {:ws, :light})
    Tollgate.advance_clock(name, 120_000)
    eventually(fn -> Tollgate.Observe.snapshot(name).agents == 0 end)
  end

  test "the memory of an instance is given back when nothing refers to it" do
    size = 1_000_000

    grown = fn ->
      name = start(agents: size)
      for at <- 1..10_000, do: Tollgate.check(name, "agent-#{at}", {:ws, :light})
      assert Tollgate.Observe.snapshot(name).memory > 80_000_000
      stop_supervised!({Tollgate, name})
    end

    before = mapped()
    for _ <- 1..20, do: grown.()
    # Twenty of them would be 1.7 GB.
    eventually(fn -> mapped() - before < 400_000_000 end)
  end

  # In a VM of its own, where nobody else takes memory or gives it back.
  test "the memory of an instance is committed when it starts, if asked for" do
    {output, 0} =
      Tollgate.Child.run("""
      {:ok, _} = Application.ensure_all_started(:tollgate)

      resident = fn ->
        [_, pages | _] = File.read!("/proc/self/statm") |> String.split()
        String.to_integer(pages) * 4096
      end

      for commit <- [false, true] do
        before = resident.()
        name = :"committed_\#{commit}"
        {:ok, _} = Tollgate.start_link(name: name, agents: 1_000_000, prefault: commit)
        grown = resident.() - before
        {:allow, 119} = Tollgate.check(name, "agent-7", {:ws, :light})
        IO.puts("\#{commit}: \#{grown > 60_000_000}")
      end
      """)

    assert output =~ "false: false"
    assert output =~ "true: true"
  end

  # Of all address space of this VM, in bytes.
  defp mapped do
    [pages | _] = File.read!("/proc/self/statm") |> String.split()
    String.to_integer(pages) * 4096
  end

  defp stop_brutally(name) do
    owner = Process.whereis(name)
    reference = Process.monitor(owner)
    # Told first not to start it again.
    :ok = stop_child(name, owner)
    assert_receive {:DOWN, ^reference, _, _, _}
  end

  defp stop_child(name, owner) do
    entry = :persistent_term.get(name)
    stop_supervised!({Tollgate, name})
    refute Process.alive?(owner)
    # What a killed owner leaves behind.
    :persistent_term.put(name, entry)
    :ok
  end
end
