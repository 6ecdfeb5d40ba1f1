# Compiled if your application has Plug.
if Code.ensure_compiled(Plug.Conn) == {:module, Plug.Conn} do
  defmodule Tollgate.AdminPlug do
    @moduledoc """
    The admin API inside your application: the paths, verbs and bodies that the server has.

        # in a router
        forward "/api/admin",
          to: Tollgate.AdminPlug,
          init_opts: [instance: MyApp.Limiter, token: {System, :fetch_env!, ["ADMIN_TOKEN"]}]

    | path | verbs |
    |---|---|
    | `/api/admin/rate-limits` | `GET`: defaults, plans, all overrides, the allowlist |
    | `/api/admin/rate-limits/defaults` | `GET`; `PUT {"http/read": "20/second"}` sets the lanes' own limits; `DELETE` restores the policy's |
    | `/api/admin/rate-limits/{agent}` | `GET`; `PUT {"overrides": {"heavy": "100/minute"}, "plan": "pro"}`, or one of the two; `DELETE`: back to the defaults |
    | `/api/admin/rate-limits/{agent}/reset_violations`, `.../reset`, `.../forget` | `POST` |
    | `/api/admin/rate-limits/allowlist` | `GET`; `PUT {"agents": [...]}` replaces it; `POST {"agent": "..."}` adds one |
    | `/api/admin/rate-limits/allowlist/{agent}` | `DELETE`: limited again |

    `whitelist` is an alias of `allowlist`; `/api/admin/rate-limits/agents/{agent}` finds every agent, also one that is
    called `defaults`. A limit is its text, or a number per minute. Changes are sent as `content-type:
    application/json`. What is invalid is answered 400 as an RFC 9457 problem whose `field` says where, and changes
    nothing.

    Requests that are not for it pass: it can stand in a pipeline as well as behind `forward`.

    ## Options

      * `:instance` - Default: `Tollgate`;
      * `:token` - what a client has to send as `authorization: Bearer ...`: a text, `{module, function, arguments}`, or
        a function without arguments; or
      * `:authorize` - your own rule: a function from the connection to `:ok`, `:unauthorized` (401) or `:forbidden`
        (403), the one that your other admin endpoints have. One of the two is required.
    """

    import Plug.Conn

    alias Tollgate.{Conduct, Control, Error, Instance, JSON, Native, Refusal, Verdict}

    if Code.ensure_loaded?(Plug), do: @behaviour(Plug)

    # As the server: a list of some ten thousand agents.
    @bytes_max 1_048_576

    @doc "Checks the options."
    @spec init(keyword) :: map
    def init(options) do
      case Keyword.keys(options) -- [:instance, :token, :authorize] do
        [] -> :ok
        unknown -> raise ArgumentError, "Tollgate.AdminPlug has no options #{inspect(unknown)}"
      end

      authorize =
        case {options[:token], options[:authorize]} do
          {nil, function} when is_function(function, 1) -> function
          {token, nil} when token != nil -> {:token, token}
          _ -> raise ArgumentError, "Tollgate.AdminPlug needs a token:, or a function from the connection in authorize:"
        end

      %{instance: Keyword.get(options, :instance, Tollgate), authorize: authorize}
    end

    @doc "Answers a request of the admin API; lets others pass."
    @spec call(Plug.Conn.t(), map) :: Plug.Conn.t()
    def call(conn, options) do
      case path(conn, conn.path_info) do
        nil -> conn
        path -> enter(conn, path, options)
      end
    end

    defp path(conn, ["api", "admin" | rest]), do: path(conn, rest)
    defp path(conn, ["rate-limits" | rest]), do: Enum.map(rest, &agent_of(conn, &1))
    defp path(_conn, _), do: nil

    @doc false
    # Browsers read "." and ".." as directories, so in every path `-?agent=..` stands for the agent in the query.
    def agent_of(conn, "-") do
      with %{"agent" => agent} <- URI.decode_query(conn.query_string), do: agent, else: (_ -> "-")
    end

    def agent_of(_conn, part), do: decoded(part)

    # Plug decodes neither in `path_info`.
    defp decoded(part) do
      URI.decode(part)
    rescue
      ArgumentError -> part
    end

    defp enter(conn, path, %{authorize: authorize} = options) do
      case authorized(conn, authorize) do
        :ok ->
          answer(conn, route(conn, path, options.instance))

        :unauthorized ->
          conn
          |> put_resp_header("www-authenticate", "Bearer")
          |> answer({401, "send: authorization: Bearer, with the admin token"})

        :forbidden ->
          answer(conn, {403, "this needs the admin right"})
      end
    end

    @doc false
    def authorized(conn, {:token, token}) do
      with [given] <- get_req_header(conn, "authorization"),
           [scheme, given] <- String.split(given, " ", parts: 2),
           "bearer" <- String.downcase(scheme),
           # Hashes are of one length, so that the time of the comparison says nothing of the token.
           true <- :crypto.hash_equals(hash(String.trim(given)), hash(value(token))) do
        :ok
      else
        _ -> :unauthorized
      end
    end

    def authorized(conn, function) do
      case function.(conn) do
        answer when answer in [:ok, :unauthorized, :forbidden] ->
          answer

        other ->
          raise ArgumentError, "authorize: has to return :ok, :unauthorized or :forbidden, got: #{inspect(other)}"
      end
    end

    @doc false
    def hash(text), do: :crypto.hash(:sha256, text)

    @doc false
    def value(text) when is_binary(text) and text != "", do: text
    def value({module, function, arguments}), do: module |> apply(function, arguments) |> value()
    def value(function) when is_function(function, 0), do: value(function.())
    def value(_), do: raise(ArgumentError, "token: of Tollgate.AdminPlug has to be a text that is not empty")

    defp route(%{method: method} = conn, path, instance) do
      case {method, path} do
        {"GET", []} -> {200, everything(instance)}
        {"GET", ["defaults"]} -> {200, defaults(instance)}
        {"PUT", ["defaults"]} -> change(conn, &set_defaults(instance, &1), fn -> defaults(instance) end)
        {"DELETE", ["defaults"]} -> changed(Control.restore_policy(instance), fn -> defaults(instance) end)
        {_, [list | rest]} when list in ["allowlist", "whitelist"] -> allowlist(conn, method, rest, instance)
        {_, ["agents" | [_ | _] = rest]} -> agent(conn, method, rest, instance)
        {_, [_ | _]} -> agent(conn, method, path, instance)
        _ -> {405, "this path has no #{method}"}
      end
    end

    defp allowlist(conn, method, rest, instance) do
      list = fn -> %{agents: Control.allowlist(instance)} end

      case {method, rest} do
        {"GET", []} -> {200, list.()}
        {"PUT", []} -> change(conn, &replace_allowlist(instance, &1), list)
        {"POST", []} -> change(conn, &add_to_allowlist(instance, &1), list)
        {"DELETE", [agent]} -> with_agent(agent, fn agent -> changed(Control.unexempt(instance, agent), list) end)
        _ -> {405, "this path has no #{method}"}
      end
    end

    defp agent(conn, method, [agent | rest], instance) do
      with_agent(agent, fn agent ->
        document = fn -> document(instance, agent) end

        case {method, rest} do
          {"GET", []} ->
            {200, document.()}

          {"PUT", []} ->
            change(conn, &set_agent(instance, agent, &1), document)

          {"DELETE", []} ->
            changed(clear(instance, agent), document)

          {"POST", ["reset_violations"]} ->
            change(conn, fn _ -> Conduct.reset_violations(instance, agent) end, document)

          {"POST", ["reset"]} ->
            change(conn, fn _ -> Tollgate.reset(instance, agent) end, document)

          {"POST", ["forget"]} ->
            change(conn, fn _ -> forget(instance, agent) end, document)

          _ when rest == [] or hd(rest) in ["reset_violations", "reset", "forget"] ->
            {405, "this path has no #{method}"}

          _ ->
            {404, "there is no such path"}
        end
      end)
    end

    defp with_agent(agent, then) when byte_size(agent) in 1..256, do: then.(agent)
    defp with_agent(_agent, _then), do: {400, "an agent has 1 to 256 bytes", "agent"}

    # --- Changes.

    defp change(conn, make, document) do
      type = conn |> get_req_header("content-type") |> List.first("") |> String.split(";") |> hd() |> String.trim()

      if String.downcase(type) == "application/json" or String.ends_with?(type, "+json") do
        case body(conn) do
          {:ok, body} -> changed(make.(body), document)
          problem -> problem
        end
      else
        {415, "send a change with the header: content-type: application/json"}
      end
    end

    @doc false
    # A parser of the application's may have read it already.
    def body(%{body_params: %{__struct__: _}} = conn) do
      case read_body(conn, length: @bytes_max) do
        {:ok, "", _} -> {:ok, nil}
        {:ok, text, _} -> with :error <- JSON.decode(text), do: {400, "the body is not JSON"}
        {:more, _, _} -> {413, "the body has more than #{@bytes_max} bytes"}
        {:error, _} -> {400, "the body could not be read"}
      end
    end

    def body(%{body_params: %{"_json" => list}}), do: {:ok, list}
    def body(%{body_params: params}), do: {:ok, if(params == %{}, do: nil, else: params)}

    defp changed(:ok, document), do: {200, document.()}
    defp changed({:error, %Error{reason: :busy, message: message}}, _), do: {503, message}
    defp changed({:error, :busy}, _), do: {503, "another program holds a lock and does not go on; try again"}
    defp changed({:error, %Error{reason: :store, message: message}}, _), do: {500, message}
    defp changed({:error, %Error{message: message}}, _), do: {400, message}
    defp changed(problem, _), do: problem

    defp set_defaults(instance, %{} = limits) when limits != %{} do
      with {:ok, limits} <- limits(instance, limits, ""), do: Control.set_defaults(instance, limits)
    end

    defp set_defaults(_instance, _), do: {400, ~s(give the lanes and their limits, such as {"http/read": "20/second"})}

    @wanted ~s(give {"overrides": {"http/heavy": "100/minute"}, "plan": "pro"} or one of the two)

    defp set_agent(instance, agent, %{} = fields) when fields != %{} do
      known = Map.keys(fields) -- ["overrides", "plan"]
      before = Control.assignment(instance, agent)

      with [] <- known,
           {:ok, limits} <- overrides(instance, fields, before),
           {:ok, plan} <- plan(instance, fields, before) do
        Instance.control(instance, {:assignment, agent, plan, limits})
      else
        [other | _] -> {400, "there is no such field; " <> @wanted, other}
        problem -> problem
      end
    end

    defp set_agent(_instance, _agent, %{}), do: {400, "it is missing; " <> @wanted, "overrides"}
    defp set_agent(_instance, _agent, _), do: {400, @wanted}

    defp overrides(instance, %{"overrides" => %{} = named}, _), do: limits(instance, named, "overrides.")
    defp overrides(_instance, %{"overrides" => nil}, _), do: {:ok, %{}}
    defp overrides(_, %{"overrides" => _}, _), do: {400, "give lanes and their limits; " <> @wanted, "overrides"}
    defp overrides(_instance, _fields, before), do: {:ok, before.overrides}

    defp plan(_instance, %{"plan" => nil}, _), do: {:ok, nil}

    defp plan(instance, %{"plan" => plan}, _) when is_binary(plan) do
      if Control.plan?(instance, plan) do
        {:ok, plan}
      else
        {400, "there is no plan #{inspect(plan)}; the plans are #{Enum.join(Control.plans(instance), ", ")}", "plan"}
      end
    end

    defp plan(_instance, %{"plan" => _}, _), do: {400, "give the name of a plan, or null for none", "plan"}
    defp plan(_instance, _fields, before), do: {:ok, before.plan}

    # A limit is its text, or a number per minute.
    defp limits(instance, named, within) do
      lanes = Control.lanes(instance)
      known = Enum.flat_map(lanes, &[&1.lane, Atom.to_string(&1.tier)])

      Enum.reduce_while(named, {:ok, %{}}, fn {name, limit}, {:ok, limits} ->
        cond do
          name not in known ->
            names = Enum.map_join(lanes, ", ", & &1.lane)
            {:halt, {400, "there is no such lane or tier; the lanes are #{names}", within <> shortened(name)}}

          is_binary(limit) ->
            {:cont, {:ok, Map.put(limits, name, limit)}}

          is_integer(limit) and limit in 0..0xFFFF_FFFF ->
            {:cont, {:ok, Map.put(limits, name, if(limit == 0, do: "deny", else: "#{limit}/minute"))}}

          true ->
            wanted = ~s(give a limit such as "10/second burst 20", "deny", or a number per minute)
            {:halt, {400, wanted, within <> name}}
        end
      end)
    end

    defp shortened(name), do: String.slice(name, 0, 80)

    defp clear(instance, agent), do: Instance.control(instance, {:assignment, agent, nil, %{}})

    defp forget(instance, agent) do
      case Tollgate.forget(instance, agent) do
        {:error, _} = error -> error
        _known -> :ok
      end
    end

    defp replace_allowlist(instance, %{"agents" => list} = body) when map_size(body) == 1,
      do: replace_allowlist(instance, list)

    defp replace_allowlist(instance, list) when is_list(list) do
      ids = for {given, at} <- Enum.with_index(list), do: {id(given), at}

      case Enum.find(ids, &match?({:error, _}, &1)) do
        {:error, at} -> {400, "an agent is a text of 1 to 256 bytes, or {\"base64\": \"...\"}", "agents[#{at}]"}
        nil -> Control.set_allowlist(instance, for({{:ok, agent}, _} <- ids, do: agent))
      end
    end

    defp replace_allowlist(_instance, _), do: {400, ~s(give {"agents": ["agent-7", ...]}), "agents"}

    defp add_to_allowlist(instance, body) do
      case body do
        %{"agent" => given} when map_size(body) == 1 -> exempt(instance, id(given))
        %{"agent_id" => given} when map_size(body) == 1 -> exempt(instance, id(given))
        _ -> {400, ~s(give {"agent": "agent-7"}), "agent"}
      end
    end

    defp exempt(instance, {:ok, agent}), do: Control.exempt(instance, agent)
    defp exempt(_instance, :error), do: {400, "an agent is a text of 1 to 256 bytes, or {\"base64\": \"...\"}", "agent"}

    defp id(text) when is_binary(text) and byte_size(text) in 1..256, do: {:ok, text}

    defp id(%{"base64" => coded} = given) when map_size(given) == 1 and is_binary(coded) do
      with {:ok, bytes} when byte_size(bytes) in 1..256 <- Base.decode64(coded), do: {:ok, bytes}, else: (_ -> :error)
    end

    defp id(_), do: :error

    # --- Documents.

    defp everything(instance) do
      {reference, _, options, _} = Instance.entry(instance)

      overrides =
        for {agent, decided} <- Control.assignments(instance), decided.plan != nil or decided.overrides != %{} do
          %{agent: agent, plan: decided.plan, overrides: decided.overrides}
        end

      # The first is that of agents without one.
      plans =
        for plan <- tl(Control.plans(instance)), into: %{}, do: {plan, Map.new(Native.plan_limits(reference, plan))}

      Map.merge(defaults(instance), %{
        plans: plans,
        overrides: Enum.sort_by(overrides, & &1.agent),
        allowlist: Control.allowlist(instance),
        kept_in: options.store
      })
    end

    defp defaults(instance) do
      limits = for %{lane: lane, limit: limit} <- Control.lanes(instance), into: %{}, do: {lane, limit}
      of_options = Map.new(Instance.limits_of_options(instance))
      %{defaults: limits, defaults_changed: Map.reject(limits, fn {lane, limit} -> of_options[lane] == limit end)}
    end

    @doc false
    def document(instance, agent) do
      {reference, _} = Instance.find(instance)
      decided = Control.assignment(instance, agent)
      conduct = Native.conduct(reference, agent, [])
      now = Native.now(reference)
      ago = fn at -> at && Verdict.milliseconds(max(0, now - at)) end
      lanes = for {lane, _} <- Native.lanes(reference), state = lane_state(reference, agent, lane), do: state

      %{
        agent: agent,
        exempt: decided.exempt,
        lanes: lanes,
        plan: decided.plan,
        overrides: decided.overrides,
        rate_limited: conduct.rate_limited,
        violations: %{
          in_window: conduct.in_window,
          in_window_or_more: conduct.in_window >= 63,
          window_began_ms_ago: ago.(conduct.window_start_ns),
          in_a_row: conduct.in_a_row,
          in_a_row_or_more: conduct.in_a_row >= 15,
          last_ms_ago: ago.(conduct.last_violation_ns),
          wait_ms: Verdict.milliseconds(conduct.wait_ns)
        }
      }
    end

    defp lane_state(reference, agent, lane) do
      with {remaining, capacity, next_in, full_in} <- Native.peek(reference, agent, lane, []) do
        used = max(0, capacity - remaining)

        %{
          lane: lane,
          limit: Native.limit_of(reference, agent, lane),
          capacity: capacity,
          remaining: remaining,
          used_percent: if(capacity == 0, do: 100, else: div(used * 100, capacity)),
          next_in_ms: Verdict.milliseconds(next_in),
          full_in_ms: Verdict.milliseconds(full_in)
        }
      else
        :exempt -> nil
      end
    end

    # --- Responses.

    defp answer(conn, {200, document}), do: send(conn, 200, "application/json", document)
    defp answer(conn, {status, detail}), do: answer(conn, {status, detail, nil})

    defp answer(conn, {status, detail, field}) do
      conn = if status == 503, do: put_resp_header(conn, "retry-after", "1"), else: conn
      more = if field, do: [field: field], else: []
      send(conn, status, "application/problem+json", Refusal.problem(status, title(status), detail, more))
    end

    defp send(conn, status, type, body) do
      conn
      |> put_resp_header("content-type", type)
      |> put_resp_header("cache-control", "no-store")
      |> send_resp(status, JSON.encode(body))
      |> halt()
    end

    defp title(400), do: "Bad Request"
    defp title(401), do: "Unauthorized"
    defp title(403), do: "Forbidden"
    defp title(404), do: "Not Found"
    defp title(405), do: "Method Not Allowed"
    defp title(413), do: "Content Too Large"
    defp title(415), do: "Unsupported Media Type"
    defp title(500), do: "Internal Server Error"
    defp title(503), do: "Service Unavailable"
  end
end
