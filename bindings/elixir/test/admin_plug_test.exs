defmodule Tollgate.AdminPlugTest do
  # The admin API, by the paths, verbs and bodies of docs/http.md.
  use Tollgate.Case, async: true

  alias Tollgate.{AdminPlug, TestJSON}

  @base "/api/admin/rate-limits"

  defp ask(name, method, path, body \\ nil, options \\ []) do
    headers = if body, do: [{"content-type", "application/json"}], else: []
    token = Keyword.get(options, :token, "Bearer secret")
    headers = if token, do: [{"authorization", token} | headers], else: headers

    conn =
      AdminPlug.call(
        %Plug.Conn{
          adapter: {Plug.Conn, if(is_binary(body), do: body, else: body && Tollgate.JSON.encode(body))},
          method: method,
          path_info: String.split(Keyword.get(options, :under, @base) <> path, "/", trim: true),
          req_headers: Keyword.get(options, :headers, headers)
        },
        AdminPlug.init(instance: name, token: "secret")
      )

    {conn.status, conn.resp_body && TestJSON.decode!(conn.resp_body), conn}
  end

  test "the defaults, what is overridden, and the allowlist" do
    name = start()
    :ok = Tollgate.Control.set_override(name, "agent-7", "http/heavy", "100/minute")
    :ok = Tollgate.Control.assign(name, <<255>>, "unauthenticated")
    assert {200, all, conn} = ask(name, "GET", "")

    assert all == %{
             "allowlist" => ["dashboard"],
             "defaults" => %{
               "http/heavy" => "10/minute",
               "http/light" => "120/minute",
               "http/normal" => "60/minute",
               "ws/heavy" => "10/minute",
               "ws/light" => "120/minute",
               "ws/normal" => "60/minute"
             },
             "defaults_changed" => %{},
             "kept_in" => nil,
             "overrides" => [
               %{"agent" => "agent-7", "plan" => nil, "overrides" => %{"http/heavy" => "100/minute"}},
               %{"agent" => %{"base64" => "/w=="}, "plan" => "unauthenticated", "overrides" => %{}}
             ],
             "plans" => %{
               "unauthenticated" => %{
                 "http/heavy" => "5/minute",
                 "http/light" => "60/minute",
                 "http/normal" => "60/minute",
                 "ws/heavy" => "10/minute",
                 "ws/light" => "120/minute",
                 "ws/normal" => "60/minute"
               }
             }
           }

    assert conn.halted and {"content-type", "application/json"} in conn.resp_headers
    # Behind a `forward` the beginning of the path is cut off.
    assert {200, ^all, _} = ask(name, "GET", "", nil, under: "/rate-limits")
  end

  test "defaults are set by lane or tier, and restored" do
    name = start()

    assert {200,
            %{"defaults" => %{"ws/heavy" => "30/minute", "http/heavy" => "20/minute"}, "defaults_changed" => changed},
            _} = ask(name, "PUT", "/defaults", %{"heavy" => 20, "ws/heavy" => "30/minute"})

    assert changed == %{"ws/heavy" => "30/minute", "http/heavy" => "20/minute"}
    assert Tollgate.Hub.capacity(name, "agent-7", :ws, :heavy) == 30
    assert {200, %{"defaults_changed" => ^changed}, _} = ask(name, "GET", "/defaults")
    assert {400, %{"field" => "colour"}, _} = ask(name, "PUT", "/defaults", %{"colour" => 1})
    assert {400, %{"field" => "heavy"}, _} = ask(name, "PUT", "/defaults", %{"heavy" => [1]})
    assert {400, %{"detail" => _}, _} = ask(name, "PUT", "/defaults", %{"heavy" => "lots"})
    assert {400, _, _} = ask(name, "PUT", "/defaults", [1])
    assert Tollgate.Hub.capacity(name, "agent-7", :ws, :heavy) == 30
    assert {200, %{"defaults_changed" => none}, _} = ask(name, "DELETE", "/defaults")
    assert none == %{} and Tollgate.Hub.capacity(name, "agent-7", :ws, :heavy) == 10
  end

  test "an agent's overrides and plan are replaced in one step, and an invalid change makes none" do
    name = start()

    assert {200, document, _} =
             ask(name, "PUT", "/agent-7", %{"overrides" => %{"heavy" => "100/minute"}, "plan" => "unauthenticated"})

    assert %{"plan" => "unauthenticated", "overrides" => %{"http/heavy" => "100/minute", "ws/heavy" => "100/minute"}} =
             document

    assert %{
             "exempt" => false,
             "rate_limited" => false,
             "violations" => %{"in_window" => 0, "window_began_ms_ago" => nil}
           } = document

    assert %{"lane" => "http/light", "limit" => "60/minute", "capacity" => 60, "remaining" => 60, "used_percent" => 0} =
             Enum.find(document["lanes"], &(&1["lane"] == "http/light"))

    for {body, field} <- [
          {%{"overrides" => %{"heavy" => "x/minute"}}, nil},
          {%{"overrides" => %{"enormous" => "1/s"}}, "overrides.enormous"},
          {%{"overrides" => 5}, "overrides"},
          {%{"plan" => "gold"}, "plan"},
          {%{"plan" => 5}, "plan"},
          {%{"colour" => 5}, "colour"},
          {%{}, "overrides"}
        ] do
      assert {400, problem, _} = ask(name, "PUT", "/agent-7", body)
      assert problem["field"] == field and problem["status"] == 400
      assert {200, ^document, _} = ask(name, "GET", "/agent-7")
    end

    assert {200, %{"plan" => nil, "overrides" => %{"ws/heavy" => _}}, _} =
             ask(name, "PUT", "/agent-7", %{"plan" => nil})

    assert {200, %{"overrides" => none}, _} = ask(name, "DELETE", "/agent-7")
    assert none == %{}
    # Names of the API, and any bytes.
    assert {200, %{"agent" => "defaults"}, _} = ask(name, "GET", "/agents/defaults")
    assert {200, %{"agent" => "a/b c"}, _} = ask(name, "GET", "/a%2Fb%20c")
    assert {200, %{"agent" => %{"base64" => "/w=="}}, _} = ask(name, "GET", "/%FF")
    assert {400, _, _} = ask(name, "GET", "/" <> String.duplicate("x", 257))
  end

  test "violations are forgiven, lanes filled, agents forgotten" do
    name = start()
    for _ <- 1..12, do: Tollgate.check(name, "agent-7", {:ws, :heavy}, counted: true)

    assert {200, %{"rate_limited" => true, "violations" => %{"in_a_row" => 2, "window_began_ms_ago" => 0}}, _} =
             ask(name, "GET", "/agent-7")

    assert {200, %{"rate_limited" => false}, _} = ask(name, "POST", "/agent-7/reset_violations", "")
    assert Tollgate.peek(name, "agent-7", {:ws, :heavy}).remaining == 0
    assert {200, _, _} = ask(name, "POST", "/agent-7/reset", "")
    assert Tollgate.peek(name, "agent-7", {:ws, :heavy}).remaining == 10
    assert {200, _, _} = ask(name, "POST", "/agent-7/forget", "")
    assert Tollgate.Observe.snapshot(name).agents == 0
    assert {404, _, _} = ask(name, "POST", "/agent-7/promote", "")
    assert {405, _, _} = ask(name, "PATCH", "/agent-7", "")
  end

  test "the allowlist, under both names" do
    name = start()

    assert {200, %{"agents" => ["a", "dashboard", %{"base64" => "/w=="}]}, _} =
             ask(name, "PUT", "/allowlist", %{"agents" => ["a", %{"base64" => "/w=="}]})

    assert {200, %{"agents" => ["a", "b", "dashboard", _]}, _} = ask(name, "POST", "/whitelist", %{"agent" => "b"})
    assert {200, %{"agents" => ["b", "dashboard", _]}, _} = ask(name, "DELETE", "/whitelist/a")
    assert {200, %{"agents" => ["b", "dashboard", _]}, _} = ask(name, "GET", "/allowlist")
    assert {400, %{"field" => "agents[1]"}, _} = ask(name, "PUT", "/allowlist", %{"agents" => ["a", 5]})
    assert {400, %{"field" => "agent"}, _} = ask(name, "POST", "/allowlist", %{"agent" => ""})
    assert {400, %{"detail" => detail}, _} = ask(name, "DELETE", "/allowlist/dashboard")
    assert detail =~ "always_exempt"
    assert Tollgate.Control.allowlist(name) == ["b", "dashboard", <<255>>]
  end

  test "who may not, and what is no change" do
    name = start()

    for token <- [nil, "", "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer secret x"] do
      assert {401, %{"status" => 401}, conn} = ask(name, "GET", "", nil, token: token)
      assert {"www-authenticate", "Bearer"} in conn.resp_headers
    end

    assert {200, _, _} = ask(name, "GET", "", nil, token: "bearer secret")
    assert {415, _, _} = ask(name, "PUT", "/agent-7", nil, headers: [{"authorization", "Bearer secret"}])
    assert {400, %{"detail" => "the body is not JSON"}, _} = ask(name, "PUT", "/agent-7", "{")
    assert {413, _, _} = ask(name, "PUT", "/agent-7", String.duplicate(" ", 1_100_000))
    slow = %Plug.Conn{method: "PUT", path_info: ["rate-limits", "a"], adapter: {Plug.Conn, :timeout}}
    slow = %{slow | req_headers: [{"authorization", "Bearer secret"}, {"content-type", "application/json"}]}
    assert AdminPlug.call(slow, AdminPlug.init(instance: name, token: "secret")).status == 400
    # Others pass.
    assert {nil, nil, %{halted: false}} = ask(name, "GET", "", nil, under: "/api/agents")

    rule = fn conn -> conn.assigns[:right] || :unauthorized end
    options = AdminPlug.init(instance: name, authorize: rule)
    conn = %Plug.Conn{method: "GET", path_info: ["api", "admin", "rate-limits"]}
    assert AdminPlug.call(conn, options).status == 401
    assert AdminPlug.call(Plug.Conn.assign(conn, :right, :forbidden), options).status == 403
    assert AdminPlug.call(Plug.Conn.assign(conn, :right, :ok), options).status == 200
    assert_raise ArgumentError, fn -> AdminPlug.call(Plug.Conn.assign(conn, :right, :yes), options) end

    for wrong <- [[], [token: nil], [token: "x", authorize: rule], [colour: 1]],
        do: assert_raise(ArgumentError, fn -> AdminPlug.init(wrong) end)

    # A parser of the application's has read the body.
    parsed = %Plug.Conn{
      method: "PUT",
      path_info: ["api", "admin", "rate-limits", "agent-7"],
      body_params: %{"plan" => "unauthenticated"}
    }

    parsed = %{
      parsed
      | req_headers: [{"authorization", "Bearer t"}, {"content-type", "application/json; charset=utf-8"}]
    }

    assert AdminPlug.call(parsed, AdminPlug.init(instance: name, token: fn -> "t" end)).status == 200
    assert Tollgate.Control.assignment(name, "agent-7").plan == "unauthenticated"
  end
end
