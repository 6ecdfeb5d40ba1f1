defmodule Tollgate.EventsTest do
  use Tollgate.Case, async: true

  alias Tollgate.Events

  test "sustained abuse arrives as one message" do
    name = start()
    Events.subscribe(name)
    # Twice is once.
    Events.subscribe(name)
    for _ <- 1..9, do: Tollgate.Conduct.record_violation(name, "agent-7")
    refute_received {:tollgate, _, _, _}
    for _ <- 1..40, do: Tollgate.Conduct.record_violation(name, "agent-7")
    assert_received {:tollgate, ^name, :sustained_abuse, %{agent: "agent-7"}}
    refute_received {:tollgate, _, _, _}
  end

  test "denials of admit are violations, with their lane, and count towards abuse" do
    name = start()
    Events.subscribe(name, [:violation, :sustained_abuse])
    for _ <- 1..20, do: Tollgate.check(name, "agent-7", {:ws, :heavy}, counted: true)

    assert_received {:tollgate, ^name, :violation,
                     %{agent: "agent-7", channel: :ws, tier: :heavy, retry_after_ms: 6_000, in_a_row: 1}}

    for _ <- 2..10, do: assert_received({:tollgate, ^name, :violation, _})
    refute_received {:tollgate, ^name, :violation, _}
    assert_received {:tollgate, ^name, :sustained_abuse, %{agent: "agent-7"}}
    refute_received {:tollgate, ^name, :sustained_abuse, _}
  end

  test "changes are sent, and those that were refused are not" do
    name = start()
    Events.subscribe(name, [:change])
    :ok = Tollgate.Control.set_override(name, "agent-7", :heavy, "20/minute")
    assert_received {:tollgate, ^name, :change, %{agent: "agent-7", what: {:override, "heavy", "20/minute"}}}
    {:error, _} = Tollgate.Control.set_override(name, "agent-7", :heavy, "none")
    refute_received {:tollgate, _, _, _}
    :ok = Tollgate.Hub.delete_agent_buckets(name, "agent-7")
    assert_received {:tollgate, ^name, :change, %{agent: "agent-7", what: :reset}}
  end

  test "others get nothing: of other instances, of other topics, or any more" do
    {one, other} = {start(), start()}
    Events.subscribe(one, [:violation])
    Tollgate.Conduct.record_violation(other, "agent-7")
    refute_received {:tollgate, _, _, _}
    Events.unsubscribe(one)
    Tollgate.Conduct.record_violation(one, "agent-7")
    refute_received {:tollgate, _, _, _}
    assert_raise ArgumentError, fn -> Events.subscribe(one, [:weather]) end
    assert_raise ArgumentError, fn -> Events.subscribe(Nobody) end
  end

  test "a topic that nobody wants costs no lookup, and who subscribes is heard from then on" do
    name = start()
    {_, _, _, %{events: {wanted, nil} = events}} = Tollgate.Instance.entry(name)
    # Nobody was there: the first event finds that out.
    assert Events.wanted?(events, :violation)
    Tollgate.Conduct.record_violation(name, "agent-7")
    refute Events.wanted?(events, :violation)
    Events.subscribe(name, [:violation])
    assert Events.wanted?(events, :violation)
    Tollgate.Conduct.record_violation(name, "agent-7")
    assert_received {:tollgate, ^name, :violation, _}
    # The owner's crash loses no subscription.
    owner = Process.whereis(name)
    Process.exit(owner, :kill)
    eventually(fn -> Process.whereis(name) not in [nil, owner] end)
    Tollgate.Conduct.record_violation(name, "agent-7")
    assert_received {:tollgate, ^name, :violation, _}
    Events.unsubscribe(name)
    Tollgate.Conduct.record_violation(name, "agent-7")
    refute_received {:tollgate, _, _, _}
    assert :atomics.get(wanted, 2) == 0
  end

  test "events are broadcast through a PubSub, and one that is missing harms nobody" do
    start_supervised!({Phoenix.PubSub, name: Tollgate.EventsTest.PubSub})
    name = start(pubsub: Tollgate.EventsTest.PubSub)
    Phoenix.PubSub.subscribe(Tollgate.EventsTest.PubSub, "tollgate")
    for _ <- 1..10, do: Tollgate.Conduct.record_violation(name, "agent-7")
    assert_received {:tollgate, ^name, :sustained_abuse, %{agent: "agent-7", in_a_row: 10}}
    :ok = Tollgate.Control.exempt(name, "agent-8")
    assert_received {:tollgate, ^name, :change, %{agent: "agent-8"}}
    refute_received {:tollgate, _, :violation, _}

    other = start(pubsub: [server: Tollgate.EventsTest.PubSub, topic: "limits", events: [:violation]])
    Phoenix.PubSub.subscribe(Tollgate.EventsTest.PubSub, "limits")
    Tollgate.Conduct.record_violation(other, "agent-7")
    assert_received {:tollgate, ^other, :violation, %{agent: "agent-7"}}

    alone = start(pubsub: Tollgate.EventsTest.Nobody)

    assert ExUnit.CaptureLog.capture_log(fn -> :ok = Tollgate.Control.exempt(alone, "agent-8") end) =~
             "cannot broadcast"

    assert Tollgate.Control.exempt?(alone, "agent-8")

    for wrong <- ["text", [topic: "x"], [server: nil], [server: :a, events: [:nothing]], [server: :a, colour: 1]] do
      assert_raise ArgumentError, fn -> Tollgate.start_link(name: :never, pubsub: wrong) end
    end
  end
end
