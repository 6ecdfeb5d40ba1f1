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

  @doc """
  Gives the agent exactly these limits of its own, by lane or by tier, in one step: all of them, or none if one is
  invalid. Those that it had are gone.

      iex> Tollgate.Control.set_overrides(Tollgate, "agent-4", %{heavy: "100/minute", light: "deny"})
      :ok
      iex> {:error, %Tollgate.Error{reason: :bad_limit}} =
      ...>   Tollgate.Control.set_overrides(Tollgate, "agent-4", heavy: "50/minute", light: "nothing")
      iex> Tollgate.Control.limit_of(Tollgate, "agent-4", {:http, :heavy})
      "100/minute"
      iex> Tollgate.Control.set_overrides(Tollgate, "agent-4", %{})
      :ok
  """
  @spec set_overrides(Tollgate.instance(), Tollgate.agent(), Enumerable.t()) :: :ok | {:error, Tollgate.Error.t()}
  def set_overrides(instance, agent, limits), do: Instance.control(instance, {:overrides, agent, limits(limits)})

  # By the names of lanes and tiers.
  defp limits(limits) when is_map(limits) or is_list(limits) do
    if is_list(limits) and List.improper?(limits), do: raise(ArgumentError, "limits are a map or a list of pairs")

    for limit <- limits, into: %{} do
      case limit do
        {lane_or_tier, limit} when is_binary(limit) ->
          {name(lane_or_tier), limit}

        other ->
          raise ArgumentError, "limits are pairs of a lane or tier and the text of a limit, got: #{inspect(other)}"
      end
    end
  end

  defp limits(other), do: raise(ArgumentError, "limits are a map or a list of pairs, got: #{inspect(other)}")

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
    unless is_list(agents) and not List.improper?(agents) and Enum.all?(agents, &is_binary/1) do
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
  The policy's lanes in their order, each with its limit for an agent without a plan.

      iex> Tollgate.start_link(name: Laned, policy: [lanes: [{"api/read", "10/minute"}]])
      iex> Tollgate.Control.lanes(Laned)
      [%{lane: "api/read", channel: :api, tier: :read, limit: "10/minute"}]
  """
  @spec lanes(Tollgate.instance()) :: [
          %{lane: String.t(), channel: Tollgate.channel(), tier: Tollgate.tier(), limit: Policy.limit()}
        ]
  def lanes(instance) do
    {reference, _} = Instance.find(instance)

    for {name, limit} <- Native.lanes(reference) do
      {channel, tier} = Policy.pair(name)
      %{lane: name, channel: channel, tier: tier, limit: limit}
    end
  end

  @doc """
  The policy in force, as TOML: what `{:toml, text}` takes.

      iex> Tollgate.start_link(name: Written, policy: [lanes: [{"api/read", "10/minute"}]])
      iex> Tollgate.Control.policy(Written) =~ ~s("api/read" = "10/minute")
      true
  """
  @spec policy(Tollgate.instance()) :: String.t()
  def policy(instance) do
    {reference, _} = Instance.find(instance)
    Native.policy(reference)
  end

  @doc """
  Puts another policy in force: other numbers for the same lanes, and perhaps more plans. Assignments stay.

  With a `:store` the next start has it too, unless the options of the instance have another policy by then.

      iex> Tollgate.start_link(name: Changed, policy: [lanes: [{"api/read", "10/minute"}]])
      iex> Tollgate.Control.replace_policy(Changed, lanes: [{"api/read", "20/minute"}])
      :ok
      iex> Tollgate.Control.limit_of(Changed, "agent-4", {:api, :read})
      "20/minute"
      iex> {:error, %Tollgate.Error{reason: :bad_policy}} = Tollgate.Control.replace_policy(Changed, {:toml, "[lane]"})
  """
  @spec replace_policy(Tollgate.instance(), Policy.t()) :: :ok | {:error, Tollgate.Error.t()}
  def replace_policy(instance, policy), do: Instance.control(instance, {:policy, Policy.source(policy), :kept})

  @doc """
  Sets limits of the policy, by lane or by tier, for agents without one of their own; kept like a whole policy.

      iex> Tollgate.start_link(name: Defaulted)
      iex> Tollgate.Control.set_defaults(Defaulted, %{:heavy => "20/minute", "ws/heavy" => "30/minute"})
      iex> for channel <- [:ws, :http], do: Tollgate.Control.limit_of(Defaulted, "agent-4", {channel, :heavy})
      ["30/minute", "20/minute"]
      iex> Tollgate.Control.restore_policy(Defaulted)
      iex> Tollgate.Control.limit_of(Defaulted, "agent-4", {:ws, :heavy})
      "10/minute"
  """
  @spec set_defaults(Tollgate.instance(), %{lane_or_tier => Policy.limit()}) :: :ok | {:error, Tollgate.Error.t()}
  def set_defaults(instance, limits), do: Instance.control(instance, {:defaults, limits(limits)})

  @doc "Puts the policy of the instance's options in force again."
  @spec restore_policy(Tollgate.instance()) :: :ok | {:error, Tollgate.Error.t()}
  def restore_policy(instance) do
    {_, _, options, _} = Instance.entry(instance)
    Instance.control(instance, {:policy, Policy.source(options.policy), :restored})
  end

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
