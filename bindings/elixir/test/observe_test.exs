defmodule Tollgate.ObserveTest do
  use Tollgate.Case, async: true

  import ExUnit.CaptureLog

  doctest Tollgate.Observe

  # The examples share the default instance.
  setup context do
    if context.test_type == :doctest, do: Tollgate.forget(Tollgate, "agent-2")
    :ok
  end

  alias Tollgate.{Events, Native}

  test "verdicts are counted by lane" do
    name = start(observe: true)
    drain(name, "agent-7", {:ws, :heavy}, 12)
    Tollgate.check_many(name, [{"agent-8", {:http, :light}}, {"agent-8", {:http, :light}}])
    Tollgate.check(name, "dashboard", {:ws, :normal})
    for _ <- 1..3, do: Tollgate.check(name, "agent-7", {:ws, :heavy}, counted: true)
    seen = Tollgate.Observe.snapshot(name)
    assert seen.observed
    assert %{allowed: 10, warned: 2, denied: 5, exempt: 1, violations: 3, agents_exempt: 1} = seen
    assert seen.lanes["ws/heavy"] == %{allowed: 8, warned: 2, denied: 5, exempt: 0}
    assert seen.lanes["http/light"] == %{allowed: 2, warned: 0, denied: 0, exempt: 0}
    assert seen.lanes["ws/normal"].exempt == 1
    assert map_size(seen.lanes) == 6
  end

  test "without it nothing is counted, and what it holds is known all the same" do
    name = start()
    drain(name, "agent-7", {:ws, :heavy}, 12)
    assert %{observed: false, allowed: 0, denied: 0, agents: 1} = Tollgate.Observe.snapshot(name)
    assert Tollgate.Observe.top_offenders(name, 3) == %{violations: 0, agents: []}
  end

  test "the worst offenders come first" do
    name = start(observe: true)

    for {agent, times} <- [{"a", 2}, {<<255>>, 7}, {"c", 4}],
        _ <- 1..times,
        do: Tollgate.Conduct.record_violation(name, agent)

    assert %{violations: 13, agents: [%{agent: <<255>>, violations: 7}, %{agent: "c"}]} =
             Tollgate.Observe.top_offenders(name, 2)

    Tollgate.advance_clock(name, 2 * 3_600_000)
    assert %{violations: 0} = Tollgate.Observe.top_offenders(name, 2)
    assert_raise ArgumentError, fn -> Tollgate.Observe.top_offenders(name, -1) end
  end

  test "events of the limiter arrive as messages" do
    name = start(observe: true, agents: 1, on_full: :deny)
    Events.subscribe(name, [:saturated, :unknown_action])
    for at <- 1..1_000, do: Tollgate.check(name, "agent-#{at}", {:ws, :heavy})
    capture_log(fn -> Tollgate.Hub.ws_tier(name, "dance") end)
    send(name, :poll)
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
               for _ <- 1..48, do: Tollgate.Conduct.record_violation(name, "agent\n7")
               settle.()
             end)

    Tollgate.advance_clock(name, 60_000)

    assert ["THROTTLE: Suppressed 47 similar messages from agent\\n7 in last minute"] =
             lines.(fn ->
               send(name, :poll)
               settle.()
             end)

    Tollgate.advance_clock(name, 240_000)

    assert ["SUMMARY: LOG THROTTLE: Suppressed 47 messages | Top sources: agent\\n7: 47"] =
             lines.(fn ->
               send(name, :poll)
               settle.()
             end)

    assert Native.log_due(reference, Native.now(reference)) == []
  end

  test "a flood of denials is a flood of neither lines nor messages" do
    name = start(log: true)
    me = self()

    log =
      capture_log(fn ->
        flood = fn agent ->
          for at <- 1..20_000 do
            if at == 10_000, do: send(me, {:longest, elem(Process.info(Process.whereis(name), :message_queue_len), 1)})
            Tollgate.check(name, agent, {:ws, :heavy}, counted: true)
          end
        end

        Task.await_many(for(at <- 1..4, do: Task.async(fn -> flood.("agent-#{at}") end)), :infinity)
        assert :ok = Tollgate.Control.set_override(name, "agent-9", :heavy, "100/minute")
      end)

    for _ <- 1..4 do
      assert_received {:longest, messages}
      assert messages < 1_000
    end

    assert length(Regex.scan(~r/INFO: Rate limit hit/, log)) == 4
    assert length(String.split(log, "\n", trim: true)) < 20
  end

  test "agents are listed, searched and sorted, a page at a time" do
    name = start(observe: true, roster: 1_000)
    for at <- 1..5, _ <- 1..at, do: Tollgate.check(name, "user:#{at}", {:ws, :heavy})
    Tollgate.check(name, <<"bot:", 255>>, {:ws, :light})
    for _ <- 1..2, do: Tollgate.Conduct.record_violation(name, "user:2")
    ids = fn options -> for view <- Tollgate.Observe.agents(name, options).agents, do: view.agent end
    # The preset exempts `dashboard`, which is listed without a record.
    assert ids.([]) == [<<"bot:", 255>>, "dashboard", "user:1", "user:2", "user:3", "user:4", "user:5"]
    assert ids.(prefix: "user:", sort: :usage, per_page: 2) == ["user:5", "user:4"]
    assert ids.(prefix: "user:", sort: :usage, per_page: 2, page: 2) == ["user:1"]
    assert ids.(page: 1) == []
    assert ids.(contains: <<255>>) == [<<"bot:", 255>>]
    assert hd(ids.(sort: :violations)) == "user:2"
    assert %{matched: 5, not_listed: 0} = Tollgate.Observe.agents(name, prefix: "user:", per_page: 1)
    [view] = Tollgate.Observe.agents(name, prefix: "user:5").agents
    assert view == Tollgate.Observe.agent(name, "user:5")
    assert_raise ArgumentError, ~r/sorted/, fn -> ids.(sort: :size) end
    assert_raise ArgumentError, ~r/per_page/, fn -> ids.(per_page: 0) end
    assert_raise ArgumentError, ~r/the options are/, fn -> ids.(limit: 1) end
    assert_raise ArgumentError, ~r/a part of an id/, fn -> ids.(prefix: String.duplicate("a", 257)) end
  end

  # The documentation promised 1,000 a page.
  test "a page has at most 200 agents" do
    name = start(observe: true, roster: 10_000)
    for at <- 1..201, do: Tollgate.check(name, "user:#{at}", {:ws, :light})
    assert %{agents: agents, matched: 201} = Tollgate.Observe.agents(name, prefix: "user:", per_page: 1_000)
    assert length(agents) == 200
    assert [_] = Tollgate.Observe.agents(name, prefix: "user:", per_page: 1_000, page: 1).agents
    {:docs_v1, _, _, _, _, _, docs} = Code.fetch_docs(Tollgate.Observe)
    {_, _, _, %{"en" => text}, _} = List.keyfind(docs, {:function, :agents, 2}, 0)
    assert text =~ "at most 200"
  end

  test "agents that are not on the roster are counted" do
    name = start(observe: true)
    for at <- 1..5, do: Tollgate.check(name, "user:#{at}", {:ws, :light})
    assert %{agents: [], matched: 0, not_listed: 5} = Tollgate.Observe.agents(name)
  end

  @tag :tmp_dir
  test "the report is JSON, and replaces a file in one step", %{tmp_dir: directory} do
    name = start(observe: true, roster: 100)
    for _ <- 1..3, do: Tollgate.Conduct.record_violation(name, "agent\n<7>")
    report = Tollgate.Observe.report(name)
    assert [%{"agent" => "agent\n<7>", "violations" => 3}] = Tollgate.TestJSON.decode!(report)["top_offenders"]
    path = Path.join(directory, "report.json")
    File.write!(path, "old")
    assert Tollgate.Observe.write_report(name, path) == :ok
    assert %{} = Tollgate.TestJSON.decode!(File.read!(path))
    assert File.ls!(directory) == ["report.json"]
    assert Tollgate.Observe.write_report(name, Path.join(directory, "no/such/folder")) == {:error, :enoent}
    # A folder cannot be replaced, and nothing is left beside it.
    File.mkdir!(Path.join(directory, "folder"))
    assert {:error, _} = Tollgate.Observe.write_report(name, Path.join(directory, "folder"))
    assert Enum.sort(File.ls!(directory)) == ["folder", "report.json"]
  end

  test "an id is shown safely wherever it is shown" do
    id = <<"<a \"b\"&\n/", 0, 255>>

    for where <- [:text, :html, :label, :url, :json], shown = Tollgate.Observe.shown(id, where) do
      assert String.valid?(shown)
      refute shown =~ ~r/[\x00-\x1f]/
    end

    refute Tollgate.Observe.shown(id, :html) =~ ~r/[<>"]/
    assert Tollgate.Observe.shown(id, :url) =~ ~r/^[A-Za-z0-9._~%-]+$/
    assert Base.decode64!(Tollgate.TestJSON.decode!(Tollgate.Observe.shown(id, :json))["base64"]) == id
    assert Tollgate.TestJSON.decode!(Tollgate.Observe.shown("a\"\n", :json)) == "a\"\n"
    assert_raise ArgumentError, fn -> Tollgate.Observe.shown("a", :xml) end
    assert_raise ArgumentError, fn -> Tollgate.Observe.shown(:a) end
    assert_raise ArgumentError, fn -> Tollgate.Observe.shown(String.duplicate("a", 257)) end
  end

  test "invalid options are refused" do
    Process.flag(:trap_exit, true)
    assert {:error, %ArgumentError{}} = Tollgate.start_link(name: :no, roster: 10)
    assert {:error, %ArgumentError{}} = Tollgate.start_link(name: :no, observe: true, roster: -1)
    assert_raise ArgumentError, fn -> Tollgate.start_link(observe: :yes) end
    assert_raise ArgumentError, fn -> Tollgate.start_link(log: 1) end
  end

  test "an agent is shown as it is under the plan of a request" do
    name = start()
    Tollgate.check(name, "agent-7", {:http, :heavy}, plan: "unauthenticated", cost: 4)
    view = Tollgate.Observe.agent(name, "agent-7", plan: :unauthenticated)
    lane = Enum.find(view.lanes, &(&1.channel == :http and &1.tier == :heavy))
    assert %{limit: "5/minute", capacity: 5, remaining: 1, used_percent: 80.0, level: :yellow} = lane
    assert view.dominant == lane
    # What the plan does not name is the policy's.
    assert %{limit: "10/minute", remaining: 10} = Enum.find(view.lanes, &(&1.channel == :ws and &1.tier == :heavy))
    assert_raise ArgumentError, ~r/no plan/, fn -> Tollgate.Observe.agent(name, "agent-7", plan: "gold") end
    :ok = Tollgate.Control.assign(name, "agent-7", "default")

    assert %{capacity: 10} =
             Enum.find(Tollgate.Observe.agent(name, "agent-7", plan: :unauthenticated).lanes, &(&1.tier == :heavy))
  end

  test "the window of an agent's violations has a beginning" do
    name = start()
    assert Tollgate.Conduct.of(name, "agent-7").window_began_ms_ago == nil
    Tollgate.Conduct.record_violation(name, "agent-7")
    Tollgate.advance_clock(name, 30_000)
    Tollgate.Conduct.record_violation(name, "agent-7")
    began = Tollgate.Conduct.of(name, "agent-7").window_began_ms_ago
    # In the eighths of a second in which conduct is kept.
    assert began in 29_875..30_125
  end

  test "views are JSON, with ids of any bytes" do
    name = start(observe: true, roster: 1_000)
    for agent <- ["agent-7", <<255, 0>>], do: Tollgate.check(name, agent, {:ws, :heavy})
    alias Tollgate.{JSON, TestJSON}

    assert %{"lanes" => %{"ws/heavy" => %{"allowed" => 2}}} =
             TestJSON.decode!(JSON.encode(Tollgate.Observe.snapshot(name)))

    %{agents: agents} = Tollgate.Observe.agents(name)

    assert ["agent-7", "dashboard", %{"base64" => "/wA="}] =
             for(agent <- agents, do: TestJSON.decode!(JSON.encode(agent))["agent"])

    # And so for Jason, if the application has it.
    assert Jason.encode!(hd(agents)) == JSON.encode(hd(agents))
    assert Jason.encode!(%Tollgate.Error{reason: :busy, message: "x"}) == ~s({"message":"x","reason":"busy"})
  end

  test "numbers for Prometheus: every line is one that its parser takes" do
    name = start(observe: true, policy: [lanes: [{~s(a"b/x\\y), "2/minute"}, {"plain", "2/minute"}]])
    for _ <- 1..3, do: Tollgate.check(name, "agent-7", "plain")
    text = Tollgate.Metrics.text(name)
    assert text =~ ~s(tollgate_decisions_total{policy="plain",tier="plain",channel="",outcome="deny"} 1\n)
    assert text =~ ~S(policy="a\"b/x\\y",tier="x\\y",channel="a\"b",outcome="allow"} 0)
    refute text =~ "agent-7"
    sample = ~r/^[a-z_]+(\{[a-z]+="(?:[^"\\]|\\["\\n])*"(?:,[a-z]+="(?:[^"\\]|\\["\\n])*")*\})? \d+$/
    lines = String.split(text, "\n", trim: true)
    assert for(line <- lines, not (line =~ ~r/^# (HELP|TYPE) /), not (line =~ sample), do: line) == []
    # A family is declared once, before its samples.
    types = for "# TYPE " <> rest <- lines, do: rest |> String.split() |> hd()
    assert types == Enum.uniq(types)
  end
end
