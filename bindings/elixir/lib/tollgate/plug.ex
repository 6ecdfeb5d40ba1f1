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

    ## Options

      * `:tier` - of every request; or
      * `:action` - a name such as `"post_task"`, or a function from the connection to one, that the policy classifies;
      * `:by` - whose request it is: `{:assign, key}` (the default, with `:agent_id`), `{:header, name}`, or a function
        from the connection to an id or `nil`. A client can send any header: use one only behind something that sets it;
      * `:unauthenticated_plan` - without an id the agent is the client's address, `ip:192.0.2.7`, or its network for
        IPv6, `ip:2001:db8:1:2::/64`, under this plan if the policy has it. `nil` for none. Default:
        `"unauthenticated"`. The address is `conn.remote_ip`: behind a proxy, let something like `remote_ip` set it
        first. An address can be exempt like any agent: `Tollgate.Control.exempt(MyApp.Limiter, "ip:192.0.2.7")`;
      * `:cost` - a number, or a function from the connection to one. Default: 1;
      * `:instance` - Default: `Tollgate`;
      * `:channel` - Default: `:http`;
      * `:headers` - `false` to leave the `x-ratelimit-` headers out;
      * `:agent_in_body` - `true` to name the agent in the body of a denial, as `agent_id`.
    """

    import Plug.Conn

    alias Tollgate.{Actions, Control, JSON, Verdict}

    if Code.ensure_loaded?(Plug), do: @behaviour(Plug)

    @options [
      instance: Tollgate,
      channel: :http,
      tier: nil,
      action: nil,
      by: {:assign, :agent_id},
      unauthenticated_plan: "unauthenticated",
      cost: 1,
      headers: true,
      agent_in_body: false,
      unix_ms: nil
    ]

    @doc "Checks the options."
    @spec init(keyword) :: map
    def init(options) do
      case Keyword.keys(options) -- Keyword.keys(@options) do
        [] -> :ok
        unknown -> raise ArgumentError, "Tollgate.Plug has no options #{inspect(unknown)}"
      end

      options = Map.new(Keyword.merge(@options, options))

      unless is_nil(options.tier) != is_nil(options.action) do
        raise ArgumentError, "Tollgate.Plug needs either tier: or action:"
      end

      options
    end

    @doc "Lets the request pass, or answers it."
    @spec call(Plug.Conn.t(), map) :: Plug.Conn.t()
    def call(conn, options) do
      {_, tier} = lane = lane(conn, options)
      {agent, plan} = agent(conn, options)

      case Verdict.ask(options.instance, agent, lane, cost: value(options.cost, conn), plan: plan, counted: true) do
        %{decision: :deny} = denied -> conn |> headers(denied, options) |> deny(denied, tier, agent, options)
        %{} = allowed -> headers(conn, allowed, options)
        {:error, :full} -> answer(conn, 503, [error: "no_room"], 1_000)
        {:error, :busy} -> answer(conn, 503, [error: "busy"], 1_000)
        {:error, :cost_above_capacity} -> answer(conn, 429, [error: "cost_above_capacity", tier: tier], nil)
      end
    end

    defp lane(_conn, %{tier: tier, channel: channel}) when tier != nil, do: {channel, tier}
    defp lane(conn, options), do: Actions.lane_for(options.instance, options.channel, value(options.action, conn))

    defp value(function, conn) when is_function(function, 1), do: function.(conn)
    defp value(value, _conn), do: value

    defp agent(conn, options) do
      case id(conn, options.by) do
        id when is_binary(id) and id != "" -> {shortened(id), nil}
        _ -> {"ip:" <> address(conn.remote_ip), plan(options)}
      end
    end

    defp id(conn, {:assign, key}), do: conn.assigns[key]
    defp id(conn, {:header, name}), do: List.first(get_req_header(conn, name))
    defp id(conn, function) when is_function(function, 1), do: function.(conn)

    # Longer than the limiter takes, and it may come from a client.
    defp shortened(id) when byte_size(id) <= 256, do: id
    defp shortened(id), do: "sha256:" <> Base.encode16(:crypto.hash(:sha256, id))

    defp plan(%{unauthenticated_plan: nil}), do: nil

    defp plan(%{instance: instance, unauthenticated_plan: plan}), do: if(Control.plan?(instance, plan), do: plan)

    @doc false
    def address({_, _, _, _} = v4), do: to_string(:inet.ntoa(v4))

    def address({0, 0, 0, 0, 0, 0xFFFF, high, low}) do
      <<a, b, c, d>> = <<high::16, low::16>>
      address({a, b, c, d})
    end

    def address({a, b, c, d, _, _, _, _}), do: to_string(:inet.ntoa({a, b, c, d, 0, 0, 0, 0})) <> "/64"

    defp headers(conn, _seen, %{headers: false}), do: conn
    defp headers(conn, %{decision: :exempt}, _options), do: conn

    defp headers(conn, seen, options) do
      now = if options.unix_ms, do: options.unix_ms.(), else: System.system_time(:millisecond)

      conn
      |> put_resp_header("x-ratelimit-limit", Integer.to_string(seen.capacity))
      |> put_resp_header("x-ratelimit-remaining", Integer.to_string(seen.remaining))
      |> put_resp_header("x-ratelimit-reset", Integer.to_string(seconds(now + seen.full_in_ms)))
    end

    defp deny(conn, denied, tier, agent, options) do
      named = if options.agent_in_body, do: [agent_id: agent], else: []
      body = [error: "rate_limited", retry_after_ms: denied.retry_after_ms, tier: tier] ++ named
      answer(conn, 429, body, denied.retry_after_ms)
    end

    defp answer(conn, status, body, wait_ms) do
      conn = if is_integer(wait_ms), do: put_resp_header(conn, "retry-after", "#{max(1, seconds(wait_ms))}"), else: conn

      conn
      |> put_resp_content_type("application/json")
      |> send_resp(status, JSON.encode(body))
      |> halt()
    end

    defp seconds(ms), do: div(ms + 999, 1_000)
  end
end
