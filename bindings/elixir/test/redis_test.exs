defmodule Tollgate.RedisTest do
  use Tollgate.Case, async: false

  import ExUnit.CaptureLog

  alias Tollgate.{Child, Observe, RedisServer}

  @moduletag timeout: 300_000
  @policy [
    lanes: [
      {"http/slow", "60/minute"},
      {"http/fast", "1000/second"},
      {"http/login", "10/hour"},
      {"ws/conn", "held 3"}
    ]
  ]
  @secret "0f6f4c0d9d1e7e4a0a2b"
  @lane {:http, :slow}

  # A busy machine is not a lost store.
  defp redis(url, options \\ []) do
    defaults = [
      url: url,
      secret: @secret,
      timeout: 1_000,
      except: [{:ws, :conn}],
      lanes: [{"http/login", exact: true, when_lost: :closed}]
    ]

    Keyword.merge(defaults, options)
  end

  defp machine(url, options \\ []) do
    name = start(policy: @policy, clock: :automatic, redis: redis(url, options))
    eventually(fn -> Observe.engine(name).state == :connected end)
    name
  end

  defp allowed?(name, agent, lane \\ @lane), do: elem(Tollgate.check(name, agent, lane), 0) != :deny

  defp on_each(test) do
    for program <- RedisServer.programs() do
      server = RedisServer.start(program)

      try do
        test.(server)
      after
        RedisServer.stop(server)
      end
    end
  end

  test "two VMs admit one limit, within the bound, and give back what they did not spend" do
    on_each(fn %{url: url} ->
      code = """
      {:ok, _} = Application.ensure_all_started(:tollgate)
      redis = #{inspect(redis(url, nodes: 2))}
      {:ok, _} = Tollgate.start_link(name: Machine, policy: #{inspect(@policy)}, agents: 1_000, redis: redis)
      connected = fn -> Tollgate.Observe.engine(Machine).state == :connected end
      true = Enum.any?(Stream.repeatedly(fn -> Process.sleep(5) && connected.() end))

      allowed =
        Enum.count(1..1_000, fn _ ->
          Process.sleep(1)
          elem(Tollgate.check(Machine, "agent-7", {:http, :slow}), 0) != :deny
        end)

      IO.puts("allowed \#{allowed}")
      :ok = GenServer.stop(Machine)
      """

      begin = System.monotonic_time(:millisecond)
      outputs = Task.await_many(for(_ <- 1..2, do: Task.async(fn -> Child.run(code) end)), 120_000)
      seconds = div(System.monotonic_time(:millisecond) - begin, 1_000)

      allowed =
        for {output, 0} <- outputs do
          [_, count] = Regex.run(~r/allowed (\d+)/, output)
          String.to_integer(count)
        end

      assert length(allowed) == 2
      assert Enum.sum(allowed) in 58..(60 + 6 + seconds + 1)
    end)
  end

  test "the store stops, answers go on, and it comes back" do
    on_each(fn server ->
      name = machine(server.url, nodes: 3)
      assert Tollgate.verdict(name, "agent-1", @lane).source == :advance
      RedisServer.signal(server, "STOP")
      Tollgate.check(name, "agent-2", @lane)
      eventually(fn -> Observe.engine(name).state == :lost end)
      begin = System.monotonic_time(:millisecond)
      share = Enum.count(1..100, fn _ -> allowed?(name, "agent-3") end)
      seconds = div(System.monotonic_time(:millisecond) - begin, 1_000)
      assert share in 20..(21 + div(seconds, 3))
      assert %{decision: :deny, source: :share} = Tollgate.verdict(name, "agent-3", @lane)
      assert %{decision: :deny, source: :closed} = Tollgate.verdict(name, "agent-3", "http/login")
      assert %{losses: %{timeout: lost}, last_problem: problem} = Observe.engine(name)
      assert lost >= 1 and is_binary(problem)
      RedisServer.signal(server, "CONT")
      eventually(fn -> Observe.engine(name).state == :connected end)
      assert Tollgate.verdict(name, "agent-4", @lane).source in [:advance, :credit]
    end)
  end

  test "an exact lane asks first, and a lane of its own is as ever" do
    on_each(fn %{url: url} ->
      name = machine(url)
      assert %{decision: :deny, source: :pending, retry_after_ms: wait} = Tollgate.verdict(name, "a", "http/login")
      assert wait < 1_000
      eventually(fn -> allowed?(name, "a", "http/login") end)
      assert {_, 2} = Tollgate.hold(name, "a", {:ws, :conn})
      assert %{lanes: lanes, nodes: 1, warnings: []} = Observe.engine(name)
      assert Map.keys(lanes) == [{:http, :fast}, {:http, :login}, {:http, :slow}]
      assert %{exact: true, when_lost: :closed, capacity: 10, answers: %{pending: pending}} = lanes[{:http, :login}]
      assert pending >= 1
    end)
  end

  test "an instance that is stopped gives its credit back, and one whose owner crashes goes on" do
    on_each(fn %{url: url} ->
      first = machine(url, nodes: 2)
      second = machine(url, nodes: 2)
      lane = {:http, :fast}
      eventually(fn -> Tollgate.verdict(first, "agent-5", lane).source == :credit end)

      # The owner is gone in the middle of it all: the engine is not.
      capture_log(fn ->
        owner = Process.whereis(first)
        Process.exit(owner, :kill)
        eventually(fn -> Process.whereis(first) not in [nil, owner] end)
      end)

      assert Observe.engine(first).state == :connected
      {reference, _} = Tollgate.Instance.find(first)
      stop_supervised!({Tollgate, first})
      assert Tollgate.Native.engine(reference) == nil
      # All of it, which no machine may have in advance: so it was paid for, and has come back.
      eventually(fn -> elem(Tollgate.check(second, "agent-5", lane, cost: 990), 0) != :deny end)
    end)
  end

  # With one scheduler, which would have nobody else to run the checks.
  test "no scheduler waits for the store" do
    on_each(fn server ->
      code = """
      {:ok, _} = Application.ensure_all_started(:tollgate)
      :erlang.system_flag(:schedulers_online, 1)
      redis = #{inspect(redis(server.url))}
      {:ok, _} = Tollgate.start_link(name: Machine, policy: #{inspect(@policy)}, agents: 1_000, redis: redis)
      connected = fn -> Tollgate.Observe.engine(Machine).state == :connected end
      true = Enum.any?(Stream.repeatedly(fn -> Process.sleep(5) && connected.() end))
      {reference, _} = Tollgate.Instance.find(Machine)
      {_, 0} = System.cmd("kill", ["-STOP", "#{server.pid}"])
      check = fn -> Tollgate.check(Machine, "agent-7", {:http, :slow}) end
      check.()
      parent = self()
      spawn(fn -> send(parent, {:stopped, Tollgate.Native.stop_engine(reference)}) end)

      checks =
        Enum.find(Stream.iterate(0, &(&1 + 1)), fn _ ->
          check.()

          receive do
            {:stopped, :ok} -> true
          after
            0 -> false
          end
        end)

      IO.puts("checks \#{checks}")
      """

      assert {output, 0} = Child.run(code)
      assert [_, checks] = Regex.run(~r/checks (\d+)/, output)
      assert String.to_integer(checks) > 1_000
    end)
  end

  test "what is secret is in no report and in no error" do
    secret = "hunter2hunter2hunter2"
    options = [url: "redis+unix:///nowhere", secret: secret, password: secret, except: ["ws/conn"]]
    spec = Tollgate.child_spec(name: Hidden, policy: @policy, agents: 100, redis: options)
    refute inspect(spec) =~ "hunter2"
    refute "#{:io_lib.format(~c"~p", [spec])}" =~ "hunter2"
    {:ok, pid} = Supervisor.start_link([spec], strategy: :one_for_one)
    refute inspect(:sys.get_state(Hidden)) =~ "hunter2"
    Supervisor.stop(pid)

    for wrong <- [
          [url: ["redis://#{secret}"]],
          [url: "http://#{secret}@a"],
          [password: {:a, secret}],
          [secret: "hunter2"]
        ] do
      Process.flag(:trap_exit, true)
      # What is wrong comes back as the reason.
      assert {:error, error} = Tollgate.start_link(name: Wrong, policy: @policy, redis: Keyword.merge(options, wrong))
      refute inspect(error) =~ "hunter2"
    end
  end

  test "wrong options are refused, with a sentence" do
    Process.flag(:trap_exit, true)

    for {wrong, words} <- [
          {[secret: nil], "needs a secret"},
          {[secret: "short"], "5 bytes"},
          {[url: nil, sentinels: ["redis://a"]], "the master has no name"},
          {[url: nil], "needs a url"},
          {[url: "redis://a", cluster: ["redis://a"]], "needs a url"},
          {[slack: 101], "slack"},
          {[when_lost: :maybe], "when_lost"},
          {[except: []], "ws/conn"},
          {[except: ["ws/conn", "apo"]], "apo"},
          {[lanes: [{"http/slow", exact: 1}]], "exact"},
          {[lanes: ["http/slow"]], "{lane, exact: true}"},
          {[tls: [ca: "no PEM"]], "rediss://"},
          {[timeout: 1], "time-out"},
          {[nodes: 0], "nodes"},
          {[master: "main"], "goes with sentinels"},
          {[other: 1], "[:other]"}
        ] do
      redis = redis("redis+unix:///nowhere") |> Keyword.merge(wrong) |> Enum.reject(&(elem(&1, 1) == nil))

      assert {:error, %ArgumentError{message: message}} =
               Tollgate.start_link(name: Wrong, policy: @policy, redis: redis)

      assert message =~ words
    end

    assert_raise ArgumentError, ~r/shared in one way/, fn ->
      Tollgate.start_link(name: Wrong, policy: @policy, shared: "/dev/shm/x", redis: redis("redis://a"))
    end

    assert {:error, %ArgumentError{message: message}} =
             Tollgate.start_link(name: Wrong, policy: @policy, redis: "redis://a")

    assert message =~ "keyword list"
  end

  test "without it an instance has no engine, and no source" do
    name = start(policy: @policy)
    assert Observe.engine(name) == nil
    assert Tollgate.verdict(name, "agent-1", @lane).source == nil
  end
end
