defmodule Tollgate.SocketTest do
  use Tollgate.Case, async: true

  alias Tollgate.{Socket, TestJSON}

  @moduletag :capture_log

  doctest Socket

  setup context do
    # Another agent than that of the other examples, which run at the same time.
    if context.test_type == :doctest, do: Tollgate.forget(Tollgate, "agent-3")
    :ok
  end

  test "a message that warns goes on with a frame; one that is denied has a frame with a wait" do
    name = start()
    answers = for _ <- 1..61, do: Socket.message(name, "agent-7", "message")
    assert Enum.count(answers, &(&1 == :allow)) == 48
    warnings = for {:warn, frame} <- answers, do: TestJSON.decode!(frame)

    assert warnings ==
             for(
               left <- 11..0//-1,
               do: %{"type" => "rate_limit_warning", "tier" => "normal", "remaining" => left, "capacity" => 60}
             )

    assert {:deny, frame} = List.last(answers)
    assert TestJSON.decode!(frame) == %{"type" => "rate_limited", "tier" => "normal", "retry_after_ms" => 1_000}
    assert Tollgate.Conduct.rate_limited?(name, "agent-7")
  end

  test "nobody is limited before it has identified itself" do
    name = start()
    for _ <- 1..1_000, do: assert(Socket.message(name, nil, "identify") == :allow)
    assert Tollgate.Observe.snapshot(name).agents == 0
  end

  test "nothing that a client sends raises" do
    name = start()

    ExUnit.CaptureLog.capture_log(fn ->
      types = [5, nil, [], %{}, 1.5, "", <<255>>, String.duplicate("x", 1_000_000), {:a}, true, :ping, <<1::3>>]
      for type <- types, do: assert(Socket.message(name, "agent-7", type) == :allow)
    end)

    # All but `:ping` are charged as what is not known.
    assert Tollgate.peek(name, "agent-7", {:ws, :normal}).remaining == 60 - 11
    assert {"ws", "(no text)"} in Tollgate.Actions.unknown(name).names

    for id <- [0, 42, :worker, "", String.duplicate("x", 257), <<0>>], do: Socket.message(name, id, "identify")
    assert Tollgate.peek(name, "42", {:ws, :heavy}).remaining == 9
    long = "sha256:" <> Base.encode16(:crypto.hash(:sha256, String.duplicate("x", 257)))
    assert Tollgate.peek(name, long, {:ws, :heavy}).remaining == 9
    assert_raise ArgumentError, ~r/an agent is/, fn -> Socket.message(name, {:not, "an id"}, "ping") end
  end

  test "an exempt agent sees no frames" do
    name = start()
    for _ <- 1..100, do: assert(Socket.message(name, "dashboard", "identify") == :allow)
  end

  test "a wait that never ends is null, and a newcomer without room is denied" do
    assert TestJSON.decode!(Socket.denial(:heavy, :infinity))["retry_after_ms"] == nil
    name = start(agents: 1, on_full: :deny)
    answers = for at <- 1..1_000, do: Socket.message(name, "agent-#{at}", "ping")
    assert {:deny, frame} = Enum.find(answers, &match?({:deny, _}, &1))
    assert %{"type" => "rate_limited", "retry_after_ms" => 1_000} = TestJSON.decode!(frame)
  end
end
