defmodule Tollgate.Control do
  @moduledoc """
  What an operator decides while an instance runs: plans, overrides, exemptions, another policy.

  A change is in force for the next check in every process when its call returns, and for the next start if the instance
  has a `:store`. One that is refused changes nothing, and the `Tollgate.Error` says why.
  """

  alias Tollgate.{Instance, Native, Policy}

  @typedoc "A lane, or a tier for its lanes in every channel: `{:ws, :heavy}`, `\"ws/heavy\"`; `:heavy`, `\"heavy\"`."
  @type lane_or_tier :: Tollgate.lane() | atom
  @typedoc "What is decided about an agent; overrides by the name of their lane."
  @type assignment :: %{plan: String.t() | nil, overrides: %{String.t() => Policy.limit()}, exempt: boolean}

  @doc """
  Assigns the agent to a plan of the policy; `nil` takes its plan away.

      iex> Tollgate.Control.assign(Tollgate, "agent-4", :unauthenticated)
      iex> Tollgate.check(Tollgate, "agent-4", {:http, :heavy})
      {:allow, 4}
      iex> Tollgate.Control.assign(Tollgate, "agent-4", nil)
      iex> Tollgate.check(Tollgate, "agent-4", {:http, :heavy})
      {:allow, 9}
  """
  @spec assign(Tollgate.instance(), Tollgate.agent(), String.t() | atom) :: :ok | {:error, Tollgate.Error.t()}
  def assign(instance, agent, plan) when is_atom(plan) and plan != nil,
    do: assign(instance, agent, Atom.to_string(plan))

  def assign(instance, agent, plan), do: Instance.control(instance, {:agent, agent, {:assign, plan}})

  @doc """
  Gives the agent a limit of its own for a lane, or for a tier in every channel.

      iex> Tollgate.Control.set_override(Tollgate, "agent-4", :heavy, "100/minute")
      :ok
      iex> Tollgate.check(Tollgate, "agent-4", {:http, :heavy})
      {:allow, 99}
      iex> Tollgate.Control.remove_override(Tollgate, "agent-4", "ws/heavy")
      iex> for channel <- [:ws, :http], do: Tollgate.Control.limit_of(Tollgate, "agent-4", {channel, :heavy})
      ["10/minute", "100/minute"]
      iex> Tollgate.Control.remove_overrides(Tollgate, "agent-4")
      :ok
      iex> {:error, %Tollgate.Error{reason: :bad_limit}} =
      ...>   Tollgate.Control.set_override(Tollgate, "agent-4", :heavy, "0/minute")
  """
  @spec set_override(Tollgate.instance(), Tollgate.agent(), lane_or_tier, Policy.limit()) ::
          :ok | {:error, Tollgate.Error.t()}
  def set_override(instance, agent, lane_or_tier, limit) do
    unless is_binary(limit), do: raise(ArgumentError, "a limit is text, such as \"10/minute\", got: #{inspect(limit)}")
    Instance.control(instance, {:agent, agent, {:override, name(lane_or_tier), limit}})
  end

  @doc "Takes the agent's own limit for a lane or tier away."
  @spec remove_override(Tollgate.instance(), Tollgate.agent(), lane_or_tier) :: :ok | {:error, Tollgate.Error.t()}
  def remove_override(instance, agent, lane_or_tier) do
    Instance.control(instance, {:agent, agent, {:override, name(lane_or_tier), nil}})
  end

  @doc "Takes all of the agent's own limits away."
  @spec remove_overrides(Tollgate.instance(), Tollgate.agent()) :: :ok | {:error, Tollgate.Error.t()}
  def remove_overrides(instance, agent), do: Instance.control(instance, {:agent, agent, {:override, nil, nil}})

  @doc """
  Never limits the agent from now on.

      iex> Tollgate.Control.exempt(Tollgate, "agent-4")
      iex> Tollgate.check(Tollgate, "agent-4", {:ws, :light})
      {:allow, :exempt}
      iex> Tollgate.Control.unexempt(Tollgate, "agent-4")
      iex> Tollgate.check(Tollgate, "agent-4", {:ws, :light})
      {:allow, 119}
  """
  @spec exempt(Tollgate.instance(), Tollgate.agent()) :: :ok | {:error, Tollgate.Error.t()}
  def exempt(instance, agent), do: Instance.control(instance, {:agent, agent, {:exempt, true}})

  @doc "Limits the agent again, by its overrides and its plan."
  @spec unexempt(Tollgate.instance(), Tollgate.agent()) :: :ok | {:error, Tollgate.Error.t()}
  def unexempt(instance, agent), do: Instance.control(instance, {:agent, agent, {:exempt, false}})

  @doc """
  Whether the agent is never limited.

      iex> Tollgate.Control.exempt?(Tollgate, "dashboard")
      true
  """
  @spec exempt?(Tollgate.instance(), Tollgate.agent()) :: boolean
  def exempt?(instance, agent) do
    {reference, _} = Instance.find(instance)
    # No limit applies, on its first lane or any other.
    Native.limit_of(reference, agent, 0) == nil
  end

  @doc "The exempt agents, sorted."
  @spec allowlist(Tollgate.instance()) :: [Tollgate.agent()]
  def allowlist(instance) do
    {reference, _} = Instance.find(instance)
    for {agent, {_, _, true}} <- Native.assignments(reference), do: agent
  end

  @doc """
  Exempts exactly these agents, besides those that the instance always exempts.

      iex> Tollgate.start_link(name: Allowed)
      iex> Tollgate.Control.set_allowlist(Allowed, ["agent-4"])
      iex> Tollgate.Control.allowlist(Allowed)
      ["agent-4", "dashboard"]
      iex> Tollgate.Control.set_allowlist(Allowed, [])
      iex> Tollgate.Control.allowlist(Allowed)
      ["dashboard"]
  """
  @spec set_allowlist(Tollgate.instance(), [Tollgate.agent()]) :: :ok | {:error, Tollgate.Error.t()}
  def set_allowlist(instance, agents) do
    unless is_list(agents) and Enum.all?(agents, &is_binary/1) do
      raise ArgumentError, "the agents have to be a list of binaries, got: #{inspect(agents)}"
    end

    Instance.control(instance, {:allowlist, agents})
  end

  @doc """
  The limit that applies to the agent on a lane, by its override, its plan or the policy; `nil` if it is exempt.

      iex> Tollgate.Control.limit_of(Tollgate, "agent-4", {:ws, :heavy})
      "10/minute"
  """
  @spec limit_of(Tollgate.instance(), Tollgate.agent(), Tollgate.lane()) :: Policy.limit() | nil
  def limit_of(instance, agent, lane) do
    {reference, _} = Instance.find(instance)
    Native.limit_of(reference, agent, lane)
  end

  @doc """
  What is decided about the agent.

      iex> Tollgate.Control.assignment(Tollgate, "agent-4")
      %{plan: nil, overrides: %{}, exempt: false}
  """
  @spec assignment(Tollgate.instance(), Tollgate.agent()) :: assignment
  def assignment(instance, agent) do
    {reference, _} = Instance.find(instance)
    to_assignment(Native.assignment(reference, agent))
  end

  @doc """
  Every agent about which something is decided.

      iex> Tollgate.start_link(name: Assigned)
      iex> Tollgate.Control.assignments(Assigned)
      %{"dashboard" => %{plan: nil, overrides: %{}, exempt: true}}
  """
  @spec assignments(Tollgate.instance()) :: %{Tollgate.agent() => assignment}
  def assignments(instance) do
    {reference, _} = Instance.find(instance)
    Map.new(Native.assignments(reference), fn {agent, decided} -> {agent, to_assignment(decided)} end)
  end

  defp to_assignment({plan, overrides, exempt}), do: %{plan: plan, overrides: Map.new(overrides), exempt: exempt}

  @doc """
  The names of the policy's plans; `"default"` comes first.

      iex> Tollgate.Control.plans(Tollgate)
      ["default", "unauthenticated"]
  """
  @spec plans(Tollgate.instance()) :: [String.t()]
  def plans(instance) do
    {reference, _} = Instance.find(instance)
    Native.plans(reference)
  end

  @doc """
  Whether the policy has a plan of this name.

      iex> {Tollgate.Control.plan?(Tollgate, "unauthenticated"), Tollgate.Control.plan?(Tollgate, "gold")}
      {true, false}
  """
  @spec plan?(Tollgate.instance(), String.t()) :: boolean
  def plan?(instance, name) do
    {reference, _} = Instance.find(instance)
    Native.plan(reference, name) != nil
  end

  @doc """
  Puts another policy in force: other numbers for the same lanes, and perhaps more plans. Assignments stay.

  It holds until the instance is stopped: the next start takes the policy of its options.

      iex> Tollgate.start_link(name: Changed, policy: [lanes: [{"api/read", "10/minute"}]])
      iex> Tollgate.Control.replace_policy(Changed, lanes: [{"api/read", "20/minute"}])
      :ok
      iex> Tollgate.Control.limit_of(Changed, "agent-4", {:api, :read})
      "20/minute"
  """
  @spec replace_policy(Tollgate.instance(), Policy.t()) :: :ok | {:error, Tollgate.Error.t()}
  def replace_policy(instance, policy), do: Instance.control(instance, {:policy, policy})

  @doc """
  Writes used budgets to the file of the option `:budgets` now: before the VM is halted, say.

  `unsaved` budgets are of agents that had a record before there was a file.
  """
  @spec save_budgets(Tollgate.instance()) ::
          {:ok, %{saved: non_neg_integer, unsaved: non_neg_integer}} | {:error, Tollgate.Error.t()}
  def save_budgets(instance) do
    {reference, _} = Instance.find(instance)

    case Native.save_budgets(reference) do
      {:error, message} -> {:error, %Tollgate.Error{reason: :budgets, message: message}}
      {saved, unsaved} -> {:ok, %{saved: saved, unsaved: unsaved}}
    end
  end

  defp name(name) when is_binary(name), do: name
  defp name({channel, tier}) when is_atom(channel) and is_atom(tier), do: Policy.name({channel, tier})
  defp name(tier) when is_atom(tier) and tier != nil, do: Atom.to_string(tier)
  defp name(other), do: raise(ArgumentError, "a lane or tier is a string or an atom, got: #{inspect(other)}")
end
