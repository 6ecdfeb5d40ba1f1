# Compiled if your application has Plug.
if Code.ensure_compiled(Plug.Conn) == {:module, Plug.Conn} do
  defmodule Tollgate.Plug do
    @moduledoc """
    Limits HTTP requests. Put it after authentication and before the body is read.

        plug Tollgate.Plug, instance: MyApp.Limiter, action: &MyApp.action/1
        plug Tollgate.Plug, instance: MyApp.Limiter, tier: :heavy, by: {:header, "x-agent-id"}

    Every response carries `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset` (the second at which the
    lane is full again). A denial is 429 with `retry-after` in whole seconds, at least 1, and the body
    `{"error":"rate_limited","retry_after_ms":6000,"tier":"heavy"}`; it counts against the agent's conduct.

    ## What is charged

      * `:tier` - of every request, in the `:channel` (default: `:http`); or
      * `:lane` - of every request, by its name: `"http/heavy"`; or
      * `:action` - a name such as `"post_task"`, or a function from the connection to one, that the policy classifies;
      * `:cost` - a number, or a function from the connection to one; 0 lets a request pass without a limit. Default: 1;
      * `:plans` - pairs of a plan and a function: the first plan whose function is true of the connection applies, if
        the agent has none assigned;
      * `:counted` - `false` if a denial is no violation. Default: `true`;
      * `:instance` - Default: `Tollgate`.

    ## Whose request it is

      * `:by` - `{:assign, key}`, `{:header, name}`, `{:secret_header, name}`, which no response shows, a function from
        the connection to an id or `nil`, `{"a signed-in user", function}`, which says in errors what it looks for, or a
        list of them: the first that finds an id. Without an id the agent is the
        client's address. Default: the assigns `:authenticated_agent` and `:agent_id`. A client can send any header: use
        one only behind something that sets it;
      * `:keys` - as `:by`, but a request without an id is answered 400. The list may also have `:address`, and
        `{:shared, id}`, one id for all requests;
      * `:unauthenticated_plan` - an address, `ip:192.0.2.7`, or a network for IPv6, `ip:2001:db8:1:2::/64`, is limited
        by this plan if the policy has it. `nil` for none. Default: `"unauthenticated"`;
      * `:allow` - networks whose requests are not limited: `["192.0.2.0/24", "2001:db8::/32"]`. Loopback is not among
        them unless you name it.

    An id may be a binary, a whole number or an atom. One that is longer than 256 bytes is limited by its SHA-256. The
    address is `conn.remote_ip`: behind a proxy, let something like `remote_ip` set it first. All peers of a Unix socket
    are the agent `unix`. An address can be exempt like any agent: `Tollgate.Control.exempt(MyApp.Limiter,
    "ip:192.0.2.7")`.

    ## What clients see

      * `:profile` - the body of a denial: `:hub` (the default), `:standard` (an RFC 9457 problem), `:platform`, `:adr`
        or `:citizen`. A client can ask for another with `accept: application/problem+json` or
        `application/json;profile=citizen`;
      * `:headers` - `:legacy` (the default of all profiles but `:standard`), `:draft10` (`RateLimit` and
        `RateLimit-Policy`), or `false` for none;
      * `:headers_only_when_low` - `true` to leave them out as long as there is no warning. Default: `false`;
      * `:answer_head` - `true` to answer HEAD with the limits, for nothing. Default: `false`;
      * `:agent_in_body` - `true` to name the agent in the body of the profile `:hub`, as `agent_id`. Others have it
        anyway.

    These are the bodies and headers of the layer for Rust and of the Python middleware: one set of data tests them all.
    """

    import Plug.Conn

    alias Tollgate.{Actions, Headers, Hub, Id, Instance, JSON, Native, Network, Refusal, Verdict}

    if Code.ensure_loaded?(Plug), do: @behaviour(Plug)

    @options [
      instance: Tollgate,
      channel: :http,
      tier: nil,
      lane: nil,
      action: nil,
      by: [{:assign, :authenticated_agent}, {:assign, :agent_id}],
      keys: nil,
      unauthenticated_plan: "unauthenticated",
      plans: [],
      allow: [],
      cost: 1,
      counted: true,
      profile: :hub,
      headers: true,
      headers_only_when_low: false,
      answer_head: false,
      agent_in_body: false,
      unix_ms: nil
    ]

    @doc "Checks the options."
    @spec init(keyword) :: map
    def init(options) do
      case Keyword.keys(options) -- Keyword.keys(@options) do
        [] -> :ok
        unknown -> wrong("has no options", unknown)
      end

      options = Map.new(Keyword.merge(@options, options))

      unless Enum.count([options.tier, options.lane, options.action], & &1) == 1,
        do: wrong("needs tier:, lane: or action:")

      unless options.profile in Refusal.profiles(),
        do: wrong("has the profiles #{inspect(Refusal.profiles())}", options.profile)

      keys = Enum.map(if(options.keys, do: options.keys, else: List.wrap(options.by) ++ [:address]), &key/1)
      plans = for plan <- options.plans, do: plan(plan)
      lane = options.lane || (options.tier && {options.channel, options.tier})
      channel = lane == nil && to_string(options.channel)

      Map.merge(options, %{
        keys: keys,
        strict: options.keys != nil,
        where: {channel || nil, lane || options.action},
        plans: plans,
        unauthenticated: options.unauthenticated_plan && {to_string(options.unauthenticated_plan)},
        allow: Enum.map(options.allow, &Network.parse/1),
        style: style(options.headers, options.profile)
      })
    end

    defp key({kind, name} = key) when kind in [:header, :secret_header] and is_binary(name),
      do: put_elem(key, 1, String.downcase(name))

    defp key({:assign, name} = key) when is_atom(name), do: key
    defp key({:shared, id}), do: {:shared, Id.agent(id)}
    defp key(:address), do: :address
    defp key({what, function} = key) when is_binary(what) and is_function(function, 1), do: key
    defp key(function) when is_function(function, 1), do: {"an id", function}
    defp key(other), do: wrong("finds no agent by", other)

    defp plan({plan, function}) when is_function(function, 1), do: {to_string(plan), function}
    defp plan(other), do: wrong("needs plans: as pairs of a name and a function, and not", other)

    defp style(true, profile), do: Refusal.style(profile)
    defp style(false, _profile), do: :off

    defp style(style, profile),
      do: if(style in Headers.styles(), do: style, else: wrong("has no headers", {style, profile}))

    defp wrong(what), do: raise(ArgumentError, "Tollgate.Plug #{what}")
    defp wrong(what, given), do: raise(ArgumentError, "Tollgate.Plug #{what} #{inspect(given)}")

    @doc "Lets the request pass, or answers it."
    @spec call(Plug.Conn.t(), map) :: Plug.Conn.t()
    def call(conn, options) do
      cost = value(options.cost, conn)

      if cost == 0 or Network.member?(options.allow, conn.remote_ip) do
        conn
      else
        case agent(conn, options.keys) do
          {:error, why} -> answer(conn, 400, "application/problem+json", Refusal.problem(400, why))
          found -> ask(conn, options, cost, found)
        end
      end
    end

    defp ask(conn, options, cost, {agent, source}) do
      %{instance: instance, where: {channel, action}} = options
      entry = Instance.entry(instance)
      plan = first_plan(options.plans, conn) || if(source == :address, do: options.unauthenticated)
      action = if is_function(action), do: Actions.text(action.(conn)), else: action

      if options.answer_head and conn.method == "HEAD" do
        report(conn, options, entry, {agent, plan}, channel, action)
      else
        case Verdict.decide(entry, instance, agent, channel, action, cost, plan, options.counted) do
          {:exempt, _} ->
            conn

          {:allow, _, _, _, _, _, _, _, _} when options.headers_only_when_low ->
            conn

          {:deny, _, _, _, _, _, _, _, _} = denied ->
            deny(conn, options, entry, {agent, plan}, cost, source, denied)

          {:error, reason, lane} ->
            failed(conn, options, entry, {agent, plan}, cost, source, {reason, lane})

          allowed ->
            with_limits(conn, quota(allowed, options, entry, {agent, plan}), options)
        end
      end
    end

    defp value(function, conn) when is_function(function, 1), do: function.(conn)
    defp value(value, _conn), do: value

    defp first_plan([], _conn), do: nil
    defp first_plan([{plan, applies} | rest], conn), do: if(applies.(conn), do: plan, else: first_plan(rest, conn))

    # The id, and what found it.
    defp agent(conn, [key | rest]) do
      case id(conn, key) do
        missing when missing in [nil, "", false] ->
          if rest == [], do: {:error, missing(key)}, else: agent(conn, rest, key)

        {:error, _} = error ->
          error

        {:agent, agent} ->
          {agent, source(key)}

        id ->
          {Id.agent(id), source(key)}
      end
    end

    defp agent(conn, rest, key) do
      with {:error, "the request does not identify its agent; it needs " <> other} <- agent(conn, rest) do
        {:error, missing(key) <> " or " <> other}
      end
    end

    defp id(conn, {:assign, key}), do: conn.assigns[key]

    defp id(conn, {kind, name}) when kind in [:header, :secret_header] do
      case get_req_header(conn, name) do
        [] -> nil
        [value] -> value
        _ -> {:error, "the header #{name} was sent more than once; send it once"}
      end
    end

    defp id(_conn, {:shared, id}), do: {:agent, id}
    defp id(conn, :address), do: {:agent, Id.address(conn.remote_ip)}
    defp id(conn, {_what, function}), do: function.(conn)

    defp source(:address), do: :address
    defp source({:secret_header, _}), do: :secret
    defp source(_), do: :id

    defp missing(key), do: "the request does not identify its agent; it needs " <> name(key)
    defp name({kind, name}) when kind in [:header, :secret_header], do: "the header #{name}"
    defp name({:assign, key}), do: "the assign #{inspect(key)}"
    defp name({what, _function}), do: what

    @doc false
    def address(remote_ip), do: remote_ip |> Id.address() |> String.replace_prefix("ip:", "")

    # What a client sees of its limit: see Tollgate.Headers.
    defp quota(answer, options, {reference, _, _, aux}, who) do
      {decision, lane, remaining, capacity, wait, full_in, token, _, _} = answer
      {_, _, prepared} = elem(aux.lanes, lane)
      quota = %{lane: prepared, capacity: capacity, remaining: remaining, full_in_ns: full_in}
      quota = Map.merge(quota, %{denied: decision == :deny, retry_after_ms: wait, window_ns: nil, next_in_ns: nil})

      cond do
        options.style != :draft10 -> quota
        capacity == 0 -> quota
        token > 0 -> %{quota | window_ns: capacity * token, next_in_ns: next_in(quota, token)}
        true -> looked_up(quota, reference, who, lane)
      end
    end

    defp next_in(%{capacity: capacity, remaining: capacity}, _token), do: nil
    defp next_in(quota, token), do: max(0, quota.full_in_ns - (quota.capacity - quota.remaining - 1) * token)

    # A lane that counts has no time of a token: it is asked when more comes back.
    defp looked_up(%{capacity: capacity} = quota, reference, {agent, _plan} = who, lane) do
      {_, tokens, per_ns} = reference |> Native.limit_of(agent, lane) |> Hub.numbers()
      quota = if tokens > 0, do: %{quota | window_ns: div(capacity * per_ns, tokens)}, else: quota

      case peek(reference, who, lane) do
        {_, _, next_in, _} when is_integer(next_in) and next_in > 0 and tokens > 0 -> %{quota | next_in_ns: next_in}
        _ -> quota
      end
    end

    # A plan in a tuple may be one that the policy does not have.
    defp peek(reference, {agent, {plan}}, lane) do
      Native.peek(reference, agent, lane, plan: Native.plan(reference, plan))
    end

    defp peek(reference, {agent, plan}, lane), do: Native.peek(reference, agent, lane, plan: plan)

    # The fields are ours, and valid: checking each as Plug does would cost more than all the rest.
    defp with_limits(%{state: state} = conn, quota, options) when state in [:unset, :set, :set_chunked, :set_file] do
      case Headers.fields(options.style, quota, options.unix_ms) do
        [] -> conn
        fields -> %{conn | resp_headers: Headers.merge(fields, conn.resp_headers, quota)}
      end
    end

    defp with_limits(conn, quota, options), do: conn |> unsent() |> with_limits(quota, options)

    # Plug says what is wrong with a connection that was answered already.
    defp unsent(%{state: state} = conn) when state in [:unset, :set, :set_chunked, :set_file], do: conn
    defp unsent(conn), do: put_resp_header(conn, "retry-after", "1")

    defp deny(conn, options, entry, who, cost, source, denied) do
      quota = quota(denied, options, entry, who)

      why =
        cond do
          elem(denied, 8) == :pending -> :pending
          elem(denied, 7) == :conduct or quota.remaining >= cost -> :conduct
          true -> :quota
        end

      refuse(conn, options, who, source, quota, why)
    end

    defp refuse(conn, options, {agent, _plan}, source, quota, why) do
      profile = Refusal.accepted(get_req_header(conn, "accept"), options.profile)
      shown = if source != :secret, do: agent
      detail = if profile == :hub, do: [named: options.agent_in_body], else: conn.request_path
      wait = Headers.retry_after(quota)
      fields = if wait, do: [{"retry-after", Integer.to_string(wait)}], else: []
      fields = [{"content-type", Refusal.content_type(profile)} | fields]
      kept = for {name, _} = field <- conn.resp_headers, name not in ["content-type", "retry-after"], do: field

      %{unsent(conn) | resp_headers: kept ++ fields}
      |> with_limits(quota, options)
      |> send_resp(429, Refusal.text(profile, quota, why, shown, detail))
      |> halt()
    end

    # A cost that never fits is a refusal with the lane as it is.
    defp failed(conn, options, {reference, _, _, _} = entry, who, cost, source, {:cost_above_capacity, lane}) do
      state = as_allowed(peek(reference, who, lane), lane)
      quota = %{quota(state, options, entry, who) | denied: true, retry_after_ms: :infinity}
      refuse(conn, options, who, source, quota, {:cost, cost})
    end

    defp failed(conn, _options, _entry, _who, _cost, _source, {reason, _lane}) do
      detail =
        if reason == :full,
          do: "the limiter has no room for another agent at the moment; try again",
          else: "another program that shares the limiter is stopped while it holds a lock; try again"

      body = [error: if(reason == :full, do: "no_room", else: "busy")] ++ Refusal.problem(503, detail)
      conn |> put_resp_header("retry-after", "1") |> answer(503, "application/problem+json", body)
    end

    defp report(conn, options, {reference, _, _, _} = entry, {agent, plan} = who, channel, action) do
      lane = lane_number(reference, options.instance, channel, action)
      state = peek(reference, {agent, plan}, lane)

      conn =
        if state == :exempt,
          do: conn,
          else: with_limits(conn, quota(as_allowed(state, lane), options, entry, who), options)

      conn |> send_resp(200, "") |> halt()
    end

    defp as_allowed({remaining, capacity, _next_in, full_in}, lane),
      do: {:allow, lane, remaining, capacity, 0, full_in, 0, nil, nil}

    defp lane_number(reference, _instance, nil, lane) do
      name = if is_binary(lane), do: lane, else: Tollgate.Policy.name(lane)

      Enum.find_index(Native.lanes(reference), fn {known, _} -> known == name end) ||
        raise ArgumentError, "the policy has no lane #{name}"
    end

    defp lane_number(reference, instance, channel, action) do
      case Native.lane_for(reference, channel, action) do
        {number, _, _, _} -> number
        nil -> Actions.unclassified(instance, channel)
      end
    end

    defp answer(conn, status, type, body) do
      conn
      |> put_resp_header("content-type", type)
      |> send_resp(status, JSON.encode(body))
      |> halt()
    end
  end
end
