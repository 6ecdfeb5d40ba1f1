defmodule Tollgate.DashboardPlugTest do
  # The page of the server, and the JSON that its scripts ask for.
  use Tollgate.Case, async: true

  alias Tollgate.{DashboardPlug, TestJSON}

  @token "a long random token"
  @assets Path.expand("../../server/src/page/assets", __DIR__)

  setup do
    name = start(observe: true, roster: 1_000)
    %{name: name, options: DashboardPlug.init(instance: name, token: @token)}
  end

  defp conn(method, path, more \\ []) do
    [path | query] = String.split(path, "?")
    fields = [method: method, path_info: String.split(path, "/", trim: true), query_string: Enum.join(query)]
    struct(Plug.Conn, Keyword.merge(fields, more))
  end

  defp header(conn, name), do: conn.resp_headers |> List.keyfind(name, 0, {name, nil}) |> elem(1)

  defp log_in(options) do
    body = Tollgate.JSON.encode(token: @token)
    answer = DashboardPlug.call(conn("POST", "/login", adapter: {Plug.Conn, body}), options)
    assert answer.status == 200
    cookie = header(answer, "set-cookie")
    assert cookie =~ "HttpOnly" and cookie =~ "SameSite=Strict"
    [{"cookie", "other=1; " <> hd(String.split(cookie, ";"))}]
  end

  defp get(path, options, headers) do
    answer = DashboardPlug.call(conn("GET", path, req_headers: headers), options)
    {answer.status, TestJSON.decode!(answer.resp_body)}
  end

  test "every file that the page and its scripts name is served, as it is", %{options: options} do
    page = DashboardPlug.call(conn("GET", "/"), options)
    assert page.status == 200 and page.resp_body == File.read!(Path.join(@assets, "index.html"))
    assert header(page, "content-security-policy") =~ "default-src 'none'"
    scripts = for path <- Path.wildcard(Path.join(@assets, "*.js")), do: File.read!(path)

    named =
      for text <- [page.resp_body | scripts],
          [name] <-
            Regex.scan(~r{"/assets/([^"]+)"|from "\./([^"]+)"}, text, capture: :all_but_first)
            |> Enum.map(&[List.last(&1)]),
          uniq: true,
          do: name

    assert length(named) >= 8

    for name <- named do
      served = DashboardPlug.call(conn("GET", "/assets/" <> name), options)
      assert {served.status, served.halted} == {200, true}, name

      again =
        DashboardPlug.call(
          conn("GET", "/assets/" <> name, req_headers: [{"if-none-match", header(served, "etag")}]),
          options
        )

      assert {again.status, again.resp_body} == {304, ""}
    end

    refute DashboardPlug.call(conn("GET", "/assets/../mod.rs"), options).halted
    refute DashboardPlug.call(conn("GET", "/elsewhere"), options).halted
  end

  test "only who has the token sees anything", %{options: options, name: name} do
    for path <- ["agents", "agents/a", "live", "nothing"] do
      assert {401, %{"status" => 401}} = get("/api/dashboard/" <> path, options, [])
    end

    assert get("/api/dashboard/session", options, []) == {200, %{"logged_in" => false}}

    for body <- ["", "{", ~s({"token": "wrong"}), ~s({"token": 5}), ~s([])] do
      assert DashboardPlug.call(conn("POST", "/login", adapter: {Plug.Conn, body}), options).status == 401
    end

    session = [{"cookie", cookie}] = log_in(options)
    assert get("/api/dashboard/session", options, session) == {200, %{"logged_in" => true}}
    assert {404, _} = get("/api/dashboard/nothing", options, session)
    assert {200, %{"defaults" => _}} = get("/api/admin/rate-limits", options, session)
    # One that is changed, or of another token.
    for wrong <- [
          cookie <> "0",
          String.replace(cookie, "=1", "=2", global: false) <> "x",
          "tollgate_session=",
          "tollgate_session=9999999999." <> String.duplicate("0", 64)
        ] do
      assert get("/api/dashboard/session", options, [{"cookie", wrong}]) == {200, %{"logged_in" => false}}
    end

    other = DashboardPlug.init(instance: name, token: fn -> "another random token" end)
    assert get("/api/dashboard/session", other, session) == {200, %{"logged_in" => false}}
    assert DashboardPlug.call(conn("POST", "/logout"), options) |> header("set-cookie") =~ "Max-Age=0"
    short = DashboardPlug.init(instance: name, token: "short")
    body = Tollgate.JSON.encode(token: "short")

    assert_raise ArgumentError, ~r/16 bytes/, fn ->
      DashboardPlug.call(conn("POST", "/login", adapter: {Plug.Conn, body}), short)
    end

    ruled = DashboardPlug.init(instance: name, authorize: fn _ -> :ok end)
    assert get("/api/dashboard/session", ruled, []) == {200, %{"logged_in" => true}}
  end

  test "agents as cards, and one of them opened", %{options: options, name: name} do
    session = log_in(options)
    :ok = Tollgate.Control.set_override(name, "agent-7", "http/light", "7/minute")
    for _ <- 1..12, do: Tollgate.check(name, "agent-7", {:ws, :heavy}, counted: true)
    Tollgate.check(name, <<255>>, {:ws, :light})

    assert {200, %{"agents" => cards, "matched" => 3, "page" => 0, "per_page" => 48}} =
             get("/api/dashboard/agents", options, session)

    assert %{
             "lane" => %{"name" => "ws/heavy", "percent" => 100, "level" => "red", "used" => 10},
             "rate_limited" => true,
             "violations" => 2,
             "overrides" => 1
           } = Enum.find(cards, &(&1["key"] == "agent-7"))

    assert Enum.any?(cards, &(&1["key"] == "%FF" and &1["shown"] == "\\xff"))
    assert {200, %{"matched" => 1}} = get("/api/dashboard/agents?search=agent&sort=violations", options, session)

    for wrong <- ["sort=colour", "page=-1", "page=x", "per_page=0", "per_page=1000"],
        do: assert({400, _} = get("/api/dashboard/agents?" <> wrong, options, session))

    assert {200, %{"id" => "agent-7", "in_a_row" => 2, "lanes" => lanes}} =
             get("/api/dashboard/agents/agent-7", options, session)

    assert %{"limit" => "7/minute", "planned" => "120/minute", "override" => "7/minute", "capacity" => 7} =
             Enum.find(lanes, &(&1["name"] == "http/light"))

    assert {200, %{"id" => %{"base64" => "/w=="}}} = get("/api/dashboard/agents/%FF", options, session)
    assert {200, %{"id" => ".."}} = get("/api/dashboard/agents/-?agent=%2E%2E", options, session)

    assert {200, %{"exempt" => true, "lanes" => [%{"name" => "ws/light", "limit" => nil} | _]}} =
             get("/api/dashboard/agents/dashboard", options, session)
  end

  test "an open page hears what happens, until it is gone", %{options: options, name: name} do
    session = log_in(options)
    me = self()
    # Stands for the client: passes on what it gets.
    client = spawn_link(fn -> pass_on(me) end)
    page = conn("GET", "/api/dashboard/live?every=1", req_headers: session, owner: client)
    served = Task.async(fn -> DashboardPlug.call(page, options) end)
    assert {"hello", %{"plans" => ["unauthenticated"], "agents_max" => 1_000, "abuse" => abuse}} = next()
    assert abuse == %{"violations" => 10, "within_seconds" => 300}
    assert {"snapshot", %{"samples" => [[_, 0, 0, 0, 0]], "agents" => _, "offenders" => []}} = next()
    for _ <- 1..10, do: Tollgate.Conduct.record_violation(name, "<b>")

    assert {"happened",
            %{
              "kind" => "sustained_abuse",
              "agent" => %{"key" => "%3Cb%3E"},
              "number" => 0,
              "text" => "10 violations in a row"
            }} = next()

    :ok = Tollgate.Control.exempt(name, "agent-8")
    assert {"happened", %{"kind" => "assignment", "agent" => %{"shown" => "agent-8"}, "number" => 1}} = next()

    assert {"snapshot", %{"offenders" => [%{"shown" => "<b>", "violations" => 10}], "violations_last_hour" => 10}} =
             next()

    Process.unlink(client)
    Process.exit(client, :kill)
    assert %{halted: true} = Task.await(served, 60_000)
  end

  defp pass_on(to) do
    receive do
      {:chunk, text} -> send(to, {:chunk, text})
    end

    pass_on(to)
  end

  defp next do
    assert_receive {:chunk, text}
    [_, name, data] = Regex.run(~r/\Aevent: (\w+)\n(?:id: \d+\n)?retry: 1000\ndata: (.*)\n\n\z/, text)
    {name, TestJSON.decode!(data)}
  end
end
