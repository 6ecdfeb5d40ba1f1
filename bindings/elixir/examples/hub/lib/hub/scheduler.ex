defmodule Hub.Scheduler do
  @moduledoc "Which agent gets the next task."

  @doc "The calling process is the connection of this agent; it is forgotten when the process ends."
  def joined(agent), do: Registry.register(Hub.Agents, :connected, agent)

  @doc "The agents that may be given work: those that have kept to their limits lately."
  def assignable do
    agents = for {_connection, agent} <- Registry.lookup(Hub.Agents, :connected), uniq: true, do: agent
    Tollgate.Conduct.assignable(Hub.Limiter, Enum.sort(agents))
  end

  @doc "The agent for a new task, or `nil`. What runs already goes on."
  def next, do: List.first(assignable())
end
