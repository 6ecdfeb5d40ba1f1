defmodule Tollgate.SharedTest do
  use Tollgate.Case, async: true

  import ExUnit.CaptureLog

  alias Tollgate.{Child, Control, Observe}

  @moduletag timeout: 300_000
  @policy [lanes: [{"http/all", "100/hour"}], plans: [{"pro", [{"http/all", "200/hour"}]}]]
  @lane {:http, :all}

  # A path of the test's own. The library appends the number of the layout.
  setup do
    path = "/dev/shm/tollgate-elixir-#{System.pid()}-#{System.unique_integer([:positive])}"
    on_exit(fn -> Enum.each(files(path), &File.rm!/1) end)
    %{path: path}
  end

  defp files(path), do: Path.wildcard(path <> ".v*")

  defp join(path, options \\ []) do
    start(Keyword.merge([policy: @policy, shared: path, clock: :automatic], options))
  end

  defp allowed(name, times), do: Enum.count(1..times, fn _ -> match?({:allow, _}, ask(name)) end)

  # A warning is allowed too.
  defp ask(name) do
    with {:warn, left} <- Tollgate.check(name, "agent-7", @lane), do: {:allow, left}
  end

  # What another VM does, with an instance `Joined` on the same path.
  defp of_other_vm(path, code) do
    """
    {:ok, _} = Application.ensure_all_started(:tollgate)
    policy = #{inspect(@policy)}
    {:ok, _} = Tollgate.start_link(name: Joined, policy: policy, shared: #{inspect(path)}, agents: 1_000)
    lane = #{inspect(@lane)}
    #{code}
    """
  end

  test "two instances on one path admit one limit", %{path: path} do
    {one, other} = {join(path), join(path)}
    tasks = for name <- [one, other, one, other], do: Task.async(fn -> allowed(name, 100) end)
    assert tasks |> Task.await_many(60_000) |> Enum.sum() == 100
    assert {:deny, _} = Tollgate.check(other, "agent-7", @lane)
    seen = Observe.snapshot(one)
    assert %{processes: 2, takeovers: 0, busy: 0, policy_differs: false, detached: false, agents: 1} = seen
  end

  test "a decision in one holds in the other", %{path: path} do
    {one, other} = {join(path), join(path)}
    :ok = Control.assign(one, "agent-7", "pro")
    assert Tollgate.check(other, "agent-7", @lane) == {:allow, 199}
    :ok = Control.set_override(other, "agent-7", @lane, "50/hour")
    assert Control.limit_of(one, "agent-7", @lane) == "50/hour"
    :ok = Tollgate.reset(one, "agent-7")
    assert Tollgate.peek(other, "agent-7", @lane).remaining == 50
    assert Tollgate.forget(other, "agent-7")
    refute Tollgate.forget(one, "agent-7")
  end

  test "another VM shares the limit, exactly", %{path: path} do
    name = join(path)

    code =
      of_other_vm(path, ~S"""
      allowed = Enum.count(1..80, fn _ -> elem(Tollgate.check(Joined, "agent-7", lane), 0) != :deny end)
      :ok = Tollgate.Control.exempt(Joined, "agent-8")
      IO.puts("allowed #{allowed} processes #{Tollgate.Observe.snapshot(Joined).processes}")
      """)

    other = Task.async(fn -> Child.run(code) end)
    mine = allowed(name, 40)
    {output, 0} = Task.await(other, 120_000)
    assert [_, theirs, processes] = Regex.run(~r/allowed (\d+) processes (\d+)/, output)
    assert processes == "2"
    # At least these are left to it.
    assert String.to_integer(theirs) >= 60
    assert mine + String.to_integer(theirs) + allowed(name, 100) == 100
    assert Tollgate.check(name, "agent-8", @lane) == {:allow, :exempt}
    eventually(fn -> Observe.snapshot(name).processes == 1 end)
  end

  test "a VM that is killed blocks nobody", %{path: path} do
    name = join(path)

    child =
      Child.start(
        of_other_vm(path, ~S"""
        spawn(fn ->
          for at <- Stream.iterate(0, &(&1 + 1)) do
            Tollgate.check(Joined, "other-#{rem(at, 3_000)}", lane)
            if rem(at, 5) == 0, do: Tollgate.Control.exempt(Joined, "other-#{rem(at, 100)}")
          end
        end)

        IO.puts("ready")
        Process.sleep(:infinity)
        """)
      )

    assert {_port, _pid, "ready"} = child
    eventually(fn -> Observe.snapshot(name).agents > 100 end)
    assert Child.kill(child) != 0
    for at <- 1..500, do: assert({_, left} = Tollgate.check(name, "new-#{at}", @lane)) && assert(is_integer(left))
    assert Control.exempt(name, "agent-9") == :ok
    eventually(fn -> Observe.snapshot(name).processes == 1 end)
  end

  test "a VM that is stopped in the middle of a change makes changes of others wait", %{path: path} do
    name = join(path)
    assert allowed(name, 1) == 1

    {_port, pid, "ready"} =
      child =
      Child.start(
        of_other_vm(path, ~S"""
        {reference, _} = Tollgate.Instance.find(Joined)
        change = fn at -> Tollgate.Native.set_exempt(reference, "agent-8", rem(at, 2) == 0) end
        spawn(fn -> Enum.each(Stream.iterate(0, &(&1 + 1)), change) end)
        IO.puts("ready")
        Process.sleep(:infinity)
        """)
      )

    signal = fn signal -> {_, 0} = System.cmd("kill", [signal, Integer.to_string(pid)]) end

    # It has the lock much of the time, so a few attempts will do.
    refused =
      Enum.find_value(1..500, fn _ ->
        signal.("-STOP")
        answer = Control.exempt(name, "agent-9")
        if answer != :ok, do: answer, else: signal.("-CONT") && nil
      end)

    assert {:error, %Tollgate.Error{reason: :busy, message: message}} = refused
    assert message =~ "#{pid}"
    assert Tollgate.reset(name, "agent-7") == {:error, :busy}
    assert Tollgate.forget(name, "agent-7") == {:error, :busy}
    # An agent that has a record is not concerned.
    assert allowed(name, 1) == 1
    assert Observe.snapshot(name).busy > 0
    assert Child.kill(child) != 0
    assert Control.exempt(name, "agent-9") == :ok
  end

  test "an instance that cannot be shared says why", %{path: path} do
    Process.flag(:trap_exit, true)
    join(path)

    for {options, message} <- [
          {[shared: path, policy: [lanes: [{"http/other", "100/hour"}]]], "as lane 0"},
          {[shared: path, policy: @policy, agents: 1_000_000], "has room for 1000 agents"},
          {[shared: path, policy: @policy, on_full: :deny], "on_full"},
          {[shared: "/proc/slab", policy: @policy], "/proc/slab"},
          {[shared: "", policy: @policy], "empty"}
        ] do
      capture_log(fn ->
        assert {:error, %ArgumentError{message: found}} =
                 Tollgate.start_link(Keyword.merge([name: :never, agents: 100], options))

        assert found =~ message
      end)
    end

    for options <- [
          [shared: :path],
          [shared_mode: 0o660],
          [shared: path, shared_mode: 0o1000],
          [shared: path, shared_mode: "rw"]
        ] do
      assert_raise ArgumentError, ~r/shared/, fn -> Tollgate.start_link([name: :never] ++ options) end
    end
  end

  test "limits that differ are those that were there first", %{path: path} do
    join(path)
    later = join(path, policy: Keyword.put(@policy, :lanes, [{"http/all", "5/hour"}]))
    assert Tollgate.check(later, "agent-7", @lane) == {:allow, 99}
    assert Observe.snapshot(later).policy_differs
  end

  test "a policy with a higher version takes their place, for all", %{path: path} do
    first = join(path)
    join(path, policy: Keyword.merge(@policy, lanes: [{"http/all", "5/hour"}], version: 2))
    assert {:allow, 4} = Tollgate.check(first, "agent-7", @lane)
    older = join(path, policy: Keyword.put(@policy, :version, 1))
    assert Tollgate.check(older, "agent-8", @lane) == {:allow, 4}
    assert_raise ArgumentError, ~r/version/, fn -> Tollgate.Policy.source(lanes: [{"a", "1/s"}], version: -1) end
  end

  test "the mode of the file is as asked for, and its removal is noticed", %{path: path} do
    name = join(path, shared_mode: 0o660)
    assert [file] = files(path)
    assert Bitwise.band(File.stat!(file).mode, 0o777) == 0o660
    refute Observe.snapshot(name).detached
    File.rm!(file)
    assert Observe.snapshot(name).detached
  end

  test "an instance that is not shared has no processes" do
    assert %{processes: 0, detached: false} = Observe.snapshot(start())
  end
end
