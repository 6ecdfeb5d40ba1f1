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

  ## Phoenix.PubSub

  With the option `pubsub: MyApp.PubSub` an instance also broadcasts every topic but `:violation`, as the same messages:

      Phoenix.PubSub.subscribe(MyApp.PubSub, "tollgate")

  `pubsub: [server: MyApp.PubSub, topic: "limits", events: [:sustained_abuse, :violation]]` chooses another topic, and
  which events. They go to all nodes that share the PubSub: an instance on each of them broadcasts its own.
  """

  require Logger

  alias Tollgate.Instance

  @compile {:no_warn_undefined, Phoenix.PubSub}

  @topics [:sustained_abuse, :violation, :change, :saturated, :unknown_action, :clock_fell_back]

  @type topic :: :sustained_abuse | :violation | :change | :saturated | :unknown_action | :clock_fell_back

  @doc "Subscribes the calling process, once, however often it asks. The subscription ends with the process."
  @spec subscribe(Tollgate.instance(), [topic]) :: :ok
  def subscribe(instance \\ Tollgate, topics \\ [:sustained_abuse]) do
    known!(topics)
    {_, _, _, %{events: {wanted, _}}} = Instance.entry(instance)
    known = Registry.keys(__MODULE__, self())

    for topic <- topics do
      if {instance, topic} not in known, do: Registry.register(__MODULE__, {instance, topic}, nil)
      :atomics.put(wanted, number(topic), System.unique_integer([:positive, :monotonic]))
    end

    :ok
  end

  @doc "Ends the subscription of the calling process."
  @spec unsubscribe(Tollgate.instance(), [topic]) :: :ok
  def unsubscribe(instance \\ Tollgate, topics \\ @topics) do
    known!(topics)
    for topic <- topics, do: Registry.unregister(__MODULE__, {instance, topic})
    :ok
  end

  defp known!(topics) do
    unless is_list(topics) and not List.improper?(topics) and topics -- @topics == [] do
      raise ArgumentError, "topics are a list of #{inspect(@topics)}, got: #{inspect(topics)}"
    end
  end

  @doc false
  # What an instance keeps to know whom its events concern: for each topic a number, not 0 as long as somebody may be
  # subscribed, and where they are broadcast. A number that says so for nothing is corrected by the first event.
  def new(pubsub) do
    wanted = :atomics.new(length(@topics), signed: true)
    for topic <- @topics, do: :atomics.put(wanted, number(topic), 1)
    {wanted, pubsub}
  end

  @doc false
  # The option `pubsub:` as it is kept.
  def pubsub(nil), do: nil
  def pubsub(server) when is_atom(server), do: pubsub(server: server)

  def pubsub(options) do
    known = [server: nil, topic: "tollgate", events: @topics -- [:violation]]

    unless Keyword.keyword?(options) and Keyword.keys(options) -- Keyword.keys(known) == [] do
      raise ArgumentError, "pubsub has to be a PubSub's name, or server:, topic: and events:, got: #{inspect(options)}"
    end

    options = Map.new(Keyword.merge(known, options))

    unless is_atom(options.server) and options.server != nil and is_binary(options.topic) and
             is_list(options.events) and options.events -- @topics == [] do
      raise ArgumentError, "pubsub needs a server:, a topic: that is text, and events: of #{inspect(@topics)}"
    end

    options
  end

  @doc false
  def wanted?({wanted, pubsub}, topic) do
    :atomics.get(wanted, number(topic)) != 0 or (pubsub != nil and topic in pubsub.events)
  end

  @doc false
  def send(instance, topic, fields) do
    {_, _, _, aux} = Instance.entry(instance)
    dispatch(aux.events, instance, topic, fields)
  end

  @doc false
  def dispatch({wanted, pubsub}, instance, topic, fields) do
    message = {:tollgate, instance, topic, fields}

    case :atomics.get(wanted, number(topic)) do
      0 ->
        :ok

      seen ->
        case Registry.lookup(__MODULE__, {instance, topic}) do
          # Unless somebody has subscribed meanwhile.
          [] -> :atomics.compare_exchange(wanted, number(topic), seen, 0)
          subscribers -> for {subscriber, _} <- subscribers, do: Kernel.send(subscriber, message)
        end
    end

    if pubsub != nil and topic in pubsub.events, do: broadcast(pubsub, message)
    :ok
  end

  # Whoever is denied has nothing to do with a PubSub that is not there.
  defp broadcast(%{server: server, topic: topic}, message) do
    Phoenix.PubSub.broadcast(server, topic, message)
  rescue
    error -> Logger.error("#{inspect(server)} cannot broadcast an event: #{Exception.message(error)}")
  end

  for {topic, number} <- Enum.with_index(@topics, 1), do: defp(number(unquote(topic)), do: unquote(number))

  @doc false
  def child_spec(_), do: Registry.child_spec(keys: :duplicate, name: __MODULE__)
end
