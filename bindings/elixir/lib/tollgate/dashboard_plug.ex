# Compiled if your application has Plug.
if Code.ensure_compiled(Plug.Conn) == {:module, Plug.Conn} do
  defmodule Tollgate.DashboardPlug do
    @moduledoc """
    The server's dashboard inside your application: the same page, from the same files, over the same JSON.

        {Bandit, plug: {Tollgate.DashboardPlug, instance: MyApp.Limiter, token: {System, :fetch_env!, ["ADMIN_TOKEN"]}},
         port: 8788, ip: :loopback}

    The page asks for `/assets/...` and `/api/...`, so it has a port or a host of its own, not a path of another site.
    It includes `Tollgate.AdminPlug`. Cards of agents need `observe: true` and a `roster:`; the chart begins when the
    page is opened.

    ## Options

      * `:instance` - Default: `Tollgate`;
      * `:token` - what a person enters, a random text of 16 bytes or more: a text, `{module, function, arguments}`, or
        a function without arguments. The session is a cookie that ends after 12 hours; or
      * `:authorize` - your own rule, as for `Tollgate.AdminPlug`: whoever it lets in sees the page without a login.
    """

    import Plug.Conn

    alias Tollgate.{AdminPlug, Control, Events, Id, JSON, Native, Observe, Refusal, Verdict}

    if Code.ensure_loaded?(Plug), do: @behaviour(Plug)

    @assets Path.join(Tollgate.Build.root(), "bindings/server/src/page/assets")
    @html "text/html; charset=utf-8"
    @script "text/javascript; charset=utf-8"
    @style "text/css; charset=utf-8"
    # What is under which name, as the server has it.
    @files Map.new(
             for({name, type} <- [{"style.css", @style}, {"index.html", @html}], do: {name, type, name}) ++
               for(name <- ~w(main dom api chart cards agent events), do: {name <> ".js", @script, name <> ".js"}) ++
               [{"uplot.js", @script, "uplot/uPlot.iife.min.js"}, {"uplot.css", @style, "uplot/uPlot.min.css"}],
             fn {name, type, path} ->
               path = Path.join(@assets, path)
               @external_resource path
               text = File.read!(path)
               tag = "\"" <> (:crypto.hash(:sha256, text) |> binary_part(0, 16) |> Base.encode16(case: :lower)) <> "\""
               {name, {type, tag, text}}
             end
           )

    # Only our own files, nothing inline, in no frame.
    @policy "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " <>
              "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " <>
              "trusted-types 'none'"

    @session_seconds 43_200
    @cookie "tollgate_session"
    @every_max 10
    @per_page 48
    @topics [:sustained_abuse, :change, :saturated, :unknown_action, :clock_fell_back]

    @doc "Checks the options."
    @spec init(keyword) :: map
    def init(options) do
      # It knows what is wrong with them.
      %{instance: instance, authorize: authorize} = AdminPlug.init(options)
      started = System.system_time(:millisecond)
      own = %{instance: instance, rule: authorize, started: started}
      Map.put(own, :admin, AdminPlug.init(instance: instance, authorize: &authorized(&1, authorize)))
    end

    @doc "Answers a request of the page; lets others pass."
    @spec call(Plug.Conn.t(), map) :: Plug.Conn.t()
    def call(conn, options) do
      case {conn.method, conn.path_info} do
        {"GET", []} -> file(conn, "index.html")
        {"GET", ["assets", name]} when is_map_key(@files, name) -> file(conn, name)
        {"POST", ["login"]} -> log_in(conn, options)
        {"POST", ["logout"]} -> with_cookie(conn, "", 0)
        {"GET", ["api", "dashboard" | rest]} -> dashboard(conn, rest, options)
        {_, ["api", "admin" | _]} -> AdminPlug.call(conn, options.admin)
        _ -> conn
      end
    end

    defp file(conn, name) do
      {type, tag, text} = Map.fetch!(@files, name)
      known? = Enum.any?(get_req_header(conn, "if-none-match"), &String.contains?(&1, tag))

      [
        {"content-type", type},
        {"content-security-policy", @policy},
        {"x-content-type-options", "nosniff"},
        {"referrer-policy", "no-referrer"},
        {"cache-control", "no-cache"},
        {"etag", tag}
      ]
      |> Enum.reduce(conn, fn {name, value}, conn -> put_resp_header(conn, name, value) end)
      |> send_resp(if(known?, do: 304, else: 200), if(known?, do: "", else: text))
      |> halt()
    end

    # --- Who may see it.

    defp authorized(conn, {:token, token}) do
      with [_ | _] = cookies <- get_req_header(conn, "cookie"),
           value when is_binary(value) <- Enum.find_value(cookies, &cookie/1),
           [ending, seal] <- String.split(value, "."),
           {ending, ""} <- Integer.parse(ending),
           true <- ending > System.system_time(:second),
           true <- byte_size(seal) == 64 and :crypto.hash_equals(seal, seal(token, ending)) do
        :ok
      else
        # A script may send the token itself.
        _ -> AdminPlug.authorized(conn, {:token, token})
      end
    end

    defp authorized(conn, rule), do: AdminPlug.authorized(conn, rule)

    defp cookie(header) do
      header |> String.split(";") |> Enum.map(&String.trim/1) |> Enum.find_value(&named/1)
    end

    defp named(@cookie <> "=" <> value), do: value
    defp named(_), do: nil

    # Nobody without the token can make one, and with another token all of them have ended.
    defp seal(token, ending) do
      :crypto.mac(:hmac, :sha256, token(token), "session #{ending}") |> Base.encode16(case: :lower)
    end

    defp token(token) do
      text = AdminPlug.value(token)
      if byte_size(text) < 16, do: raise(ArgumentError, "token: of Tollgate.DashboardPlug needs 16 bytes or more")
      text
    end

    defp log_in(conn, %{rule: {:token, token}}) do
      with {:ok, %{"token" => given}} when is_binary(given) <- AdminPlug.body(conn),
           true <- :crypto.hash_equals(AdminPlug.hash(given), AdminPlug.hash(token(token))) do
        ending = System.system_time(:second) + @session_seconds
        with_cookie(conn, "#{ending}.#{seal(token, ending)}", @session_seconds)
      else
        _ -> json(conn, 401, Refusal.problem(401, "Unauthorized", "this is not the admin token", []))
      end
    end

    # Who may see it was let in already.
    defp log_in(conn, %{rule: rule}) do
      if authorized(conn, rule) == :ok,
        do: json(conn, 200, %{ok: true}),
        else: json(conn, 401, Refusal.problem(401, "Unauthorized", "log in where your application does", []))
    end

    # Sent by the page itself alone, and to nobody's script.
    defp with_cookie(conn, value, seconds) do
      secure = if conn.scheme == :https, do: "; Secure", else: ""
      text = "#{@cookie}=#{value}; Path=/; Max-Age=#{seconds}; HttpOnly; SameSite=Strict#{secure}"
      conn |> put_resp_header("set-cookie", text) |> json(200, %{ok: true})
    end

    # --- What it shows.

    defp dashboard(conn, ["session"], options) do
      json(conn, 200, %{logged_in: authorized(conn, options.rule) == :ok})
    end

    defp dashboard(conn, path, %{instance: instance} = options) do
      case {authorized(conn, options.rule), path} do
        {:unauthorized, _} -> json(conn, 401, Refusal.problem(401, "Unauthorized", "log in first", []))
        {:forbidden, _} -> json(conn, 403, Refusal.problem(403, "Forbidden", "this needs the admin right", []))
        {:ok, ["live"]} -> live(conn, options)
        {:ok, ["agents"]} -> agents(conn, instance)
        {:ok, ["agents", agent]} -> conn |> AdminPlug.agent_of(agent) |> one(conn, instance)
        _ -> json(conn, 404, Refusal.problem(404, "Not Found", "there is no such path", []))
      end
    end

    defp agents(conn, instance) do
      query = URI.decode_query(conn.query_string)
      sorts = %{"" => :usage, "usage" => :usage, "violations" => :violations, "id" => :id}

      with {:ok, sort} <- Map.fetch(sorts, Map.get(query, "sort", "")),
           {page, ""} when page >= 0 <- Integer.parse(Map.get(query, "page", "0")),
           {per_page, ""} when per_page in 1..200 <- Integer.parse(Map.get(query, "per_page", "#{@per_page}")),
           search = Map.get(query, "search", ""),
           true <- byte_size(search) <= 256 do
        found = Observe.agents(instance, contains: search, sort: sort, page: page, per_page: per_page)
        cards = Enum.map(found.agents, &card(instance, &1))
        counts = %{matched: found.matched, listed: length(cards), not_listed: found.not_listed}
        json(conn, 200, Map.merge(counts, %{agents: cards, page: page, per_page: per_page}))
      else
        _ ->
          json(
            conn,
            400,
            Refusal.problem(400, "give a page from 0, per_page from 1 to 200, and sort by usage, violations or id")
          )
      end
    end

    defp one(agent, conn, _instance) when byte_size(agent) not in 1..256 do
      json(conn, 400, Refusal.problem(400, "an agent has 1 to 256 bytes"))
    end

    defp one(agent, conn, instance) do
      {reference, _} = Tollgate.Instance.find(instance)
      view = Observe.agent(instance, agent)
      decided = Control.assignment(instance, agent)
      planned = Map.new(if decided.plan, do: Native.plan_limits(reference, decided.plan), else: Native.lanes(reference))

      lanes =
        if view.exempt,
          do: for({name, _} <- Native.lanes(reference), do: %{name: name, limit: nil, full_in_ms: 0}),
          else: for(lane <- view.lanes, do: Map.merge(usage(lane), %{limit: lane.limit, full_in_ms: lane.full_in_ms}))

      lanes =
        for lane <- lanes do
          Map.merge(lane, %{planned: planned[lane.name], override: decided.overrides[lane.name]})
        end

      json(conn, 200, Map.merge(card(instance, view), %{id: agent, known: true, in_a_row: view.in_a_row, lanes: lanes}))
    end

    defp card(instance, view) do
      {reference, _} = Tollgate.Instance.find(instance)

      %{
        key: Observe.shown(view.agent, :url),
        shown: Observe.shown(view.agent),
        plan: view.plan,
        exempt: view.exempt,
        overrides: Enum.count(view.lanes, & &1.override),
        lane: view.dominant && usage(view.dominant),
        violations: view.in_window,
        wait_ms: Verdict.milliseconds(Native.conduct(reference, view.agent, []).wait_ns),
        rate_limited: view.rate_limited
      }
    end

    # Whole percent, rounded so that they never seem to belong to another level.
    defp usage(lane) do
      percent = lane.used_percent
      percent = if percent < 50, do: floor(percent), else: ceil(percent)
      used = max(0, lane.capacity - lane.remaining)
      name = Tollgate.Policy.name({lane.channel, lane.tier})
      %{name: name, used: used, capacity: lane.capacity, percent: percent, level: lane.level}
    end

    # --- The live connection: server-sent events, until the page is gone or its session has ended.

    defp live(conn, %{instance: instance} = options) do
      every =
        case conn.query_string |> URI.decode_query() |> Map.get("every", "") |> Integer.parse() do
          {seconds, ""} -> min(max(seconds, 1), @every_max)
          _ -> @every_max
        end

      Events.subscribe(instance, @topics)

      conn =
        [{"content-type", "text/event-stream"}, {"cache-control", "no-store"}, {"x-accel-buffering", "no"}]
        |> Enum.reduce(conn, fn {name, value}, conn -> put_resp_header(conn, name, value) end)
        |> send_chunked(200)

      with {:ok, conn} <- event(conn, "hello", nil, hello(options)), do: send_on(conn, options, every * 1_000, 0, 0)
      Events.unsubscribe(instance, @topics)
      halt(conn)
    end

    # Ends when the page is gone or its session has ended.
    defp send_on(conn, %{instance: instance} = options, every, wait, number) do
      before = System.monotonic_time(:millisecond)

      receive do
        {:tollgate, ^instance, topic, fields} ->
          left = max(0, wait - (System.monotonic_time(:millisecond) - before))

          with {:ok, conn} <- event(conn, "happened", number, happened(number, topic, fields)) do
            send_on(conn, options, every, left, number + 1)
          end
      after
        wait ->
          with :ok <- authorized(conn, options.rule),
               {:ok, conn} <- event(conn, "snapshot", nil, snapshot(instance)) do
            send_on(conn, options, every, every, number)
          end
      end
    end

    # The only line breaks in JSON are escaped.
    defp event(conn, name, number, data) do
      id = if number, do: "id: #{number}\n", else: ""
      chunk(conn, "event: #{name}\n#{id}retry: 1000\ndata: #{JSON.encode(data)}\n\n")
    end

    defp hello(%{instance: instance, started: started}) do
      {_, _, options, _} = Tollgate.Instance.entry(instance)

      %{
        version: to_string(Application.spec(:tollgate, :vsn)),
        started: started,
        lanes: for(%{lane: lane, limit: limit} <- Control.lanes(instance), do: %{name: lane, limit: limit}),
        plans: tl(Control.plans(instance)),
        agents_max: options.agents,
        abuse: abuse(Control.policy(instance)),
        kept_in: options.store
      }
    end

    # As the limiter writes it: `abuse = { violations = 10, within = "5min" }`.
    defp abuse(toml) do
      {violations, within} =
        case Regex.run(~r/violations = (\d+), within = "(\d+)([a-z]+)"/, toml, capture: :all_but_first) do
          [violations, count, unit] ->
            {_, _, per_ns} = Tollgate.Hub.numbers("1/#{count}#{unit}")
            {String.to_integer(violations), div(per_ns, 1_000_000_000)}

          nil ->
            {10, 300}
        end

      %{violations: violations, within_seconds: within}
    end

    defp snapshot(instance) do
      seen = Observe.snapshot(instance)
      sum = fn key -> seen.lanes |> Map.values() |> Enum.map(& &1[key]) |> Enum.sum() end
      counts = Enum.map([:allowed, :warned, :denied, :exempt], sum)

      offenders =
        for offender <- Observe.top_offenders(instance, 3).agents do
          shown = %{key: Observe.shown(offender.agent, :url), shown: Observe.shown(offender.agent)}
          Map.merge(shown, Map.take(offender, [:violations, :error]))
        end

      %{
        samples: [[System.system_time(:millisecond) | counts]],
        checks: Enum.sum(counts),
        violations_last_hour: seen.violations_last_hour,
        sustained_abuse: seen.sustained_abuse,
        agents: seen.agents,
        exempt: seen.agents_exempt,
        overridden: seen.agents_overridden,
        offenders: offenders,
        sharing: nil,
        engine: nil
      }
    end

    defp happened(number, topic, fields) do
      {kind, text} =
        case {topic, fields} do
          {:sustained_abuse, %{in_a_row: row}} ->
            {"sustained_abuse", "#{row}#{if row >= 15, do: " or more"} violations in a row"}

          {:change, %{agent: _}} ->
            {"assignment", ""}

          {:change, %{what: {:allowlist, agents}}} ->
            {"assignments", "#{length(agents)} agents"}

          {:change, _} ->
            {"policy", ""}

          {:saturated, seen} ->
            {"saturated", "#{seen.lossy_evictions} records given up, #{seen.refused} agents refused so far"}

          {:unknown_action, seen} ->
            {"unknown_action", "#{Observe.shown(seen.action)} on #{Observe.shown(seen.channel)}"}

          {:clock_fell_back, _} ->
            {"clock", ""}
        end

      agent = if agent = fields[:agent], do: Id.agent(agent)
      of = agent && %{key: Observe.shown(agent, :url), shown: Observe.shown(agent)}
      %{number: number, at_ms: System.system_time(:millisecond), kind: kind, agent: of, text: text}
    end

    defp json(conn, status, body) do
      type = if status == 200, do: "application/json", else: "application/problem+json"

      conn
      |> put_resp_header("content-type", type)
      |> put_resp_header("cache-control", "no-store")
      |> send_resp(status, JSON.encode(body))
      |> halt()
    end
  end
end
