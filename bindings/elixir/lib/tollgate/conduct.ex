defmodule Tollgate.Conduct do
  @moduledoc """
  An agent's violations, and the waits that follow.

  A denial of a request with `counted: true` is a violation if the agent came back before its wait was over, or under a
  policy that counts every denial; `conduct` in `Tollgate.Policy` has the rules. `at:` is an instant, as everywhere: see
  `Tollgate`.
  """

  alias Tollgate.{Instance, Native, Verdict}

  @doc """
  Records a violation that the caller has found, and returns how long the agent should wait, in milliseconds: 0 if the
  policy has no curve.

      iex> for _ <- 1..6, do: Tollgate.Conduct.record_violation(Tollgate, "agent-5")
      [1000, 2000, 5000, 10000, 30000, 30000]
  """
  @spec record_violation(Tollgate.instance(), Tollgate.agent(), at: non_neg_integer) ::
          non_neg_integer | {:error, :full | :busy}
  def record_violation(instance, agent, options \\ []) do
    {reference, _, _, _} = entry = Instance.entry(instance)

    with %{wait_ms: wait} = violation <- Native.record_violation(reference, agent, options) do
      Verdict.violated(entry, instance, agent, wait, violation.in_a_row, violation.sustained_abuse, %{})
      wait
    end
  end

  @doc """
  The agent's conduct: its violations in the window of the abuse threshold, how long ago that window began (`nil`
  without one), those in a row, what is left of its wait (up to an eighth of a second more than it was given), and
  whether it is rate limited.

      iex> Tollgate.Conduct.record_violation(Tollgate, "agent-5")
      iex> %{in_window: 1, in_a_row: 1, rate_limited: true} = Tollgate.Conduct.of(Tollgate, "agent-5")
  """
  @spec of(Tollgate.instance(), Tollgate.agent(), at: non_neg_integer) :: %{
          in_window: non_neg_integer,
          window_began_ms_ago: non_neg_integer | nil,
          in_a_row: non_neg_integer,
          wait_ms: non_neg_integer,
          rate_limited: boolean
        }
  def of(instance, agent, options \\ []) do
    {reference, _} = Instance.find(instance)
    conduct = Native.conduct(reference, agent, options)

    now = Keyword.get_lazy(options, :at, fn -> Native.now(reference) end)
    began = conduct.window_start_ns && Verdict.milliseconds(max(0, now - conduct.window_start_ns))

    conduct
    |> Map.take([:in_window, :in_a_row, :rate_limited])
    |> Map.merge(%{wait_ms: Verdict.milliseconds(conduct.wait_ns), window_began_ms_ago: began})
  end

  @doc """
  Whether the agent has violated a limit and has not been quiet since: a scheduler gives it no new work.

      iex> Tollgate.Conduct.rate_limited?(Tollgate, "agent-5")
      false
  """
  @spec rate_limited?(Tollgate.instance(), Tollgate.agent(), at: non_neg_integer) :: boolean
  def rate_limited?(instance, agent, options \\ []) do
    {reference, _} = Instance.find(instance)
    Native.conduct(reference, agent, options).rate_limited
  end

  @doc """
  The agents that may be given new work: those that are not `rate_limited?/2`, in the same order.

      iex> Tollgate.Conduct.record_violation(Tollgate, "agent-5")
      iex> Tollgate.Conduct.assignable(Tollgate, ["agent-5", "agent-6"])
      ["agent-6"]
  """
  @spec assignable(Tollgate.instance(), [Tollgate.agent()], at: non_neg_integer) :: [Tollgate.agent()]
  def assignable(instance, agents, options \\ []) do
    {reference, _} = Instance.find(instance)
    agents |> Tollgate.chunks() |> Enum.flat_map(&Native.assignable(reference, &1, options))
  end

  @doc """
  Forgives the agent all violations.

      iex> Tollgate.Conduct.record_violation(Tollgate, "agent-5")
      iex> Tollgate.Conduct.reset_violations(Tollgate, "agent-5")
      :ok
      iex> Tollgate.Conduct.rate_limited?(Tollgate, "agent-5")
      false
  """
  @spec reset_violations(Tollgate.instance(), Tollgate.agent()) :: :ok
  def reset_violations(instance, agent) do
    {reference, _} = Instance.find(instance)
    _had_any = Native.reset_violations(reference, agent)
    :ok
  end
end
