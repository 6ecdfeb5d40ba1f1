defmodule Tollgate.Log do
  @moduledoc false
  # Log lines about denials, for `log: true`. Who was denied asks the limiter's throttle whether a line is due, so that
  # a flood of denials is neither a flood of lines nor one of messages. A line begins with its kind: INFO, THROTTLE or
  # SUMMARY.

  require Logger

  alias Tollgate.Native

  @doc "A request of the agent was denied: logs what is due."
  def denied(reference, agent) do
    case Native.log_denied(reference, agent, Native.now(reference)) do
      [] -> :ok
      lines -> Enum.each(lines, &Logger.warning/1)
    end
  end

  @doc "Logs what has become due with time."
  def due(reference), do: Enum.each(Native.log_due(reference, Native.now(reference)), &Logger.warning/1)
end
