defmodule Hub.Router do
  @moduledoc "HTTP: who is it, may it do that, then the work."

  @behaviour Plug

  import Plug.Conn

  @impl Plug
  def init(_options) do
    %{
      # Loopback is a person at the machine.
      limit: Tollgate.Plug.init(instance: Hub.Limiter, action: &action/1, allow: ["127.0.0.1"]),
      admin: Tollgate.AdminPlug.init(instance: Hub.Limiter, authorize: &authorize/1)
    }
  end

  @impl Plug
  def call(conn, options) do
    conn
    |> authenticate()
    |> unless_halted(&Tollgate.AdminPlug.call(&1, options.admin))
    |> unless_halted(&Tollgate.Plug.call(&1, options.limit))
    |> unless_halted(&route(&1, conn.method, conn.path_info))
  end

  defp unless_halted(%{halted: true} = conn, _next), do: conn
  defp unless_halted(conn, next), do: next.(conn)

  # The id that was verified, or none: then the address is limited.
  defp authenticate(conn) do
    with ["Bearer " <> token] <- get_req_header(conn, "authorization"),
         %{^token => agent} <- Application.get_env(:hub, :tokens, %{}) do
      assign(conn, :authenticated_agent, agent)
    else
      _ -> conn
    end
  end

  defp authorize(conn) do
    case conn.assigns do
      %{authenticated_agent: "admin" <> _} -> :ok
      %{authenticated_agent: _} -> :forbidden
      _ -> :unauthorized
    end
  end

  # What the policy classifies: `post_task` is heavy, `get_agents` is light.
  defp action(%{method: method, path_info: path}) do
    case path do
      ["api", "onboard", "register"] -> "post_onboard_register"
      ["api", "tasks", _id] -> "get_task_detail"
      ["api", "tasks"] when method == "POST" -> "post_task"
      ["api", what | _] -> String.downcase(method) <> "_" <> what
      _ -> "get_health"
    end
  end

  defp route(conn, "GET", ["ws"]) do
    case conn.assigns do
      %{authenticated_agent: agent} -> WebSockAdapter.upgrade(conn, Hub.Socket, %{agent: agent}, timeout: 60_000)
      # An agent may also say who it is with its first message.
      _ -> WebSockAdapter.upgrade(conn, Hub.Socket, %{agent: nil}, timeout: 60_000)
    end
  end

  defp route(conn, "GET", ["api", "agents"]), do: json(conn, 200, %{assignable: Hub.Scheduler.assignable()})
  defp route(conn, "POST", ["api", "tasks"]), do: json(conn, 202, %{assigned_to: Hub.Scheduler.next()})
  defp route(conn, "GET", ["api", "dashboard", "state"]), do: json(conn, 200, Hub.Watcher.state())

  defp route(conn, "GET", ["metrics"]) do
    conn
    |> put_resp_header("content-type", Tollgate.Metrics.content_type())
    |> send_resp(200, Tollgate.Metrics.text(Hub.Limiter))
  end

  defp route(conn, _method, _path), do: json(conn, 404, %{error: "not_found"})

  defp json(conn, status, body) do
    conn |> put_resp_header("content-type", "application/json") |> send_resp(status, Jason.encode!(body))
  end
end
