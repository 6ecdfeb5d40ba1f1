defmodule Tollgate.SocketTest do
  use Tollgate.Case, async: true

  alias Tollgate.{Socket, TestJSON}

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
               left <- 11..0,
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
