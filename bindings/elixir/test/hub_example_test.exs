defmodule Tollgate.HubExampleTest do
  # The example in examples/hub, compiled and driven against the stand-ins. Alone, since its names are fixed.
  use Tollgate.Case, async: false

  alias Tollgate.TestJSON

  @moduletag :tmp_dir
  @moduletag :capture_log

  setup_all do
    files = Path.wildcard(Path.expand("../examples/hub/lib/**/*.ex", __DIR__))
    {:ok, modules, warnings} = Kernel.ParallelCompiler.compile(files)
    assert length(modules) == 5 and warnings == []
    :ok
  end

  setup %{tmp_dir: folder} do
    Application.put_env(:hub, :store, Path.join(folder, "limits.json"))
    Application.put_env(:hub, :tokens, %{"t7" => "agent-7", "t8" => "agent-8", "ta" => "admin-1"})
    # By their names, since this module is compiled before they are.
    for child <- apply(Hub.Application, :limiter, []), do: start_supervised!(child)
    options = apply(Hub.Router, :init, [[]])
    %{ask: fn conn -> apply(Hub.Router, :call, [conn, options]) end}
  end

  defp conn(method, path, token \\ nil, body \\ nil) do
    headers = if token, do: [{"authorization", "Bearer " <> token}], else: []

    %Plug.Conn{
      adapter: {Plug.Conn, body},
      method: method,
      path_info: String.split(path, "/", trim: true),
      request_path: path,
      remote_ip: {192, 0, 2, 7},
      req_headers: [{"content-type", "application/json"} | headers]
    }
  end

  defp send_text(message, state) do
    case apply(Hub.Socket, :handle_in, [{Tollgate.JSON.encode(message), [opcode: :text]}, state]) do
      {:push, frames, state} -> {for({:text, frame} <- List.wrap(frames), do: TestJSON.decode!(frame)), state}
      {:ok, state} -> {[], state}
    end
  end

  test "HTTP: each action has its tier, by the agent that was verified, or by address", %{ask: ask} do
    for _ <- 1..10, do: assert(ask.(conn("POST", "/api/tasks", "t7")).status == 202)
    denied = ask.(conn("POST", "/api/tasks", "t7"))
    assert denied.status == 429
    assert %{"error" => "rate_limited", "retry_after_ms" => ms, "tier" => "heavy"} = TestJSON.decode!(denied.resp_body)
    assert rem(ms, 1_000) == 0
    assert ask.(conn("POST", "/api/tasks", "t8")).status == 202
    assert ask.(conn("GET", "/api/agents", "t7")).status == 200
    answers = for _ <- 1..6, do: ask.(conn("POST", "/api/onboard/register")).status
    assert answers == [404, 404, 404, 404, 404, 429]
    # An invented token is nobody's.
    assert ask.(conn("POST", "/api/onboard/register", "invented")).status == 429
  end

  test "operators: the admin API by the hub's own rule, metrics, the state of the dashboard", %{ask: ask} do
    assert ask.(conn("GET", "/api/admin/rate-limits")).status == 401
    assert ask.(conn("GET", "/api/admin/rate-limits", "t7")).status == 403
    assert ask.(conn("PUT", "/api/admin/rate-limits/agent-7", "ta", ~s({"overrides": {"heavy": 2}}))).status == 200
    assert for(_ <- 1..3, do: ask.(conn("POST", "/api/tasks", "t7")).status) == [202, 202, 429]
    assert ask.(conn("GET", "/metrics", "ta")).resp_body =~ ~s(tier="heavy",channel="http",outcome="deny"} 1)
    state = TestJSON.decode!(ask.(conn("GET", "/api/dashboard/state", "ta")).resp_body)

    assert %{
             "violations_last_hour" => 1,
             "exempt" => 1,
             "top_offenders" => [%{"agent" => "agent-7", "violations" => 1}]
           } = state

    assert %{"level" => "red", "rate_limited" => true, "tier" => "heavy"} =
             Enum.find(state["agents"], &(&1["agent"] == "agent-7"))
  end

  test "WebSocket: warned, then denied, and never disconnected; the scheduler passes over who was", %{ask: _} do
    {:ok, state} = apply(Hub.Socket, :init, [%{agent: nil}])
    assert {[%{"error" => "identify first"}], state} = send_text(%{type: "message", text: "hello"}, state)

    assert {[%{"type" => "identified"}], %{agent: "agent-7"} = state} =
             send_text(%{type: "identify", agent_id: "agent-7"}, state)

    assert apply(Hub.Scheduler, :assignable, []) == ["agent-7"]
    Phoenix.PubSub.subscribe(Hub.PubSub, "messages")
    Phoenix.PubSub.subscribe(Hub.PubSub, "notifications")

    frames =
      for _ <- 1..61, {frames, ^state} = send_text(%{type: "message", text: "hello"}, state), do: List.first(frames)

    assert Enum.count(frames, &(&1 == nil)) == 48
    assert Enum.count(frames, &match?(%{"type" => "rate_limit_warning", "tier" => "normal"}, &1)) == 12
    assert %{"type" => "rate_limited", "retry_after_ms" => 1_000, "tier" => "normal"} = List.last(frames)
    # The warned ones were delivered.
    for _ <- 1..60, do: assert_received({:message, "agent-7", "hello"})
    refute_received {:message, _, _}
    assert apply(Hub.Scheduler, :next, []) == nil

    ExUnit.CaptureLog.capture_log(fn ->
      for _ <- 1..30, do: send_text(%{type: "message"}, state)
      assert_receive {:sustained_abuse, "agent-7"}
    end)

    refute_received {:sustained_abuse, _}

    ExUnit.CaptureLog.capture_log(fn ->
      for text <- ["", "{", "[]", "5", ~s({"type": 5}), ~s({"type": {}}), ~s({"no": "type"})] do
        {_, ^state} =
          apply(Hub.Socket, :handle_in, [{text, [opcode: :text]}, state])
          |> then(&{elem(&1, 0), List.last(Tuple.to_list(&1))})
      end
    end)
  end
end
