defmodule Tollgate.Events do
  @moduledoc """
  What happens in an instance, as messages to the processes that subscribe:

      Tollgate.Events.subscribe(MyApp.Limiter, [:sustained_abuse, :change])

      receive do
        {:tollgate, MyApp.Limiter, :sustained_abuse, %{agent: agent}} -> alert(agent)
      end

  | topic | when | fields |
  |---|---|---|
  | `:sustained_abuse` | an agent's violations have become sustained abuse (policy `:hub`: 10 within 5 minutes); again only after a while without any | `agent`, `in_a_row` |
  | `:violation` | a request with `counted: true` was denied, or `Tollgate.Conduct.record_violation/3` was called | `agent`, `retry_after_ms`, `in_a_row`; of a denial also `channel`, `tier` |
  | `:saturated` | no record was free for a new agent, except from an agent in debt, or none at all; at most once a minute | `lossy_evictions`, `refused` |
  | `:unknown_action` | an action that the policy does not name was asked for, for the first time | `channel`, `action` |
  | `:clock_fell_back` | the clock has given up the processor's counter | |
  | `:change` | an operator has changed something | `what`, and `agent` if it concerns one |

  `:saturated`, `:unknown_action` and `:clock_fell_back` need `observe: true`, and arrive within a second.

  A flood of denials is a flood of `:violation` messages; a process gets them only if it asks. Messages to a process
  that does not read them stay in its mailbox, as ever.
  """

  alias Tollgate.Instance

  @topics [:sustained_abuse, :violation, :change, :saturated, :unknown_action, :clock_fell_back]

  @type topic :: :sustained_abuse | :violation | :change | :saturated | :unknown_action | :clock_fell_back

  @doc "Subscribes the calling process, once, however often it asks. The subscription ends with the process."
  @spec subscribe(Tollgate.instance(), [topic]) :: :ok
  def subscribe(instance \\ Tollgate, topics \\ [:sustained_abuse]) do
    Instance.find(instance)

    case topics -- @topics do
      [] -> :ok
      unknown -> raise ArgumentError, "unknown topics #{inspect(unknown)}; known are #{inspect(@topics)}"
    end

    known = Registry.keys(__MODULE__, self())
    for topic <- topics, {instance, topic} not in known, do: Registry.register(__MODULE__, {instance, topic}, nil)
    :ok
  end

  @doc "Ends the subscription of the calling process."
  @spec unsubscribe(Tollgate.instance(), [topic]) :: :ok
  def unsubscribe(instance \\ Tollgate, topics \\ @topics) do
    for topic <- topics, do: Registry.unregister(__MODULE__, {instance, topic})
    :ok
  end

  @doc false
  def send(instance, topic, fields) do
    Registry.dispatch(__MODULE__, {instance, topic}, fn subscribers ->
      for {subscriber, _} <- subscribers, do: Kernel.send(subscriber, {:tollgate, instance, topic, fields})
    end)
  end

  @doc false
  def child_spec(_), do: Registry.child_spec(keys: :duplicate, name: __MODULE__)
end
