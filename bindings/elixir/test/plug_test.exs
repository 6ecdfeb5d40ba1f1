defmodule Tollgate.PlugTest do
  # Against a stand-in for Plug.Conn: test/support/plug_conn.ex.
  use Tollgate.Case, async: true

  alias Tollgate.TestJSON

  defp call(conn, options), do: Tollgate.Plug.call(conn, Tollgate.Plug.init(options))
  defp of(agent), do: %Plug.Conn{assigns: %{agent_id: agent}, remote_ip: {127, 0, 0, 1}}
  defp header(conn, name), do: conn.resp_headers |> List.keyfind(name, 0, {name, nil}) |> elem(1)
  defp unix, do: 1_700_000_000_001

  test "lets a request through, and says what is left" do
    name = start()
    conn = call(of("agent-7"), instance: name, tier: :heavy, unix_ms: &unix/0)
    refute conn.halted
    assert conn.status == nil
    assert header(conn, "x-ratelimit-limit") == "10"
    assert header(conn, "x-ratelimit-remaining") == "9"
    # Full in 6 s, rounded up to a whole second.
    assert header(conn, "x-ratelimit-reset") == "1700000007"
    assert header(conn, "retry-after") == nil
  end

  test "a warning is an allowance" do
    name = start()
    drain(name, "agent-7", {:http, :heavy}, 8)
    conn = call(of("agent-7"), instance: name, tier: :heavy)
    refute conn.halted
    assert header(conn, "x-ratelimit-remaining") == "1"
  end

  test "denies with 429, a wait in seconds, and a body" do
    name = start()
    drain(name, "agent-7", {:http, :heavy}, 10)
    conn = call(of("agent-7"), instance: name, tier: :heavy)
    assert conn.halted and conn.status == 429 and conn.state == :sent
    assert header(conn, "retry-after") == "6"
    assert header(conn, "content-type") =~ "application/json"
    assert header(conn, "x-ratelimit-remaining") == "0"

    assert TestJSON.decode!(conn.resp_body) == %{
             "error" => "rate_limited",
             "retry_after_ms" => 6_000,
             "tier" => "heavy"
           }

    # Denials are violations: the waits grow.
    waits = for _ <- 1..4, do: header(call(of("agent-7"), instance: name, tier: :heavy), "retry-after")
    assert waits == ["6", "6", "10", "30"]
    assert Tollgate.Conduct.rate_limited?(name, "agent-7")
  end

  test "a wait is at least a second, and rounded up" do
    name = start(policy: [lanes: [{"http/fast", "3/second"}, {"http/never", "deny"}]])
    drain(name, "agent-7", {:http, :fast}, 3)
    denied = call(of("agent-7"), instance: name, tier: :fast)
    assert header(denied, "retry-after") == "1"
    never = call(of("agent-7"), instance: name, tier: :never)
    assert never.status == 429
    assert header(never, "retry-after") == nil
    # An operator may open it.
    assert TestJSON.decode!(never.resp_body)["retry_after_ms"] == 60_000
  end

  test "the policy classifies actions" do
    name = start()
    conn = call(of("agent-7"), instance: name, action: "get_agents")
    assert header(conn, "x-ratelimit-limit") == "120"
    conn = call(of("agent-7"), instance: name, action: fn conn -> conn.assigns.agent_id && "post_task" end)
    assert header(conn, "x-ratelimit-limit") == "10"
  end

  test "the agent is found where the options say" do
    name = start()
    by_header = %Plug.Conn{req_headers: [{"x-agent-id", "agent-7"}]}
    call(by_header, instance: name, tier: :heavy, by: {:header, "x-agent-id"})
    assert Tollgate.peek(name, "agent-7", {:http, :heavy}).remaining == 9
    call(%Plug.Conn{}, instance: name, tier: :heavy, by: fn _ -> "agent-7" end, cost: 3)
    assert Tollgate.peek(name, "agent-7", {:http, :heavy}).remaining == 6
    call(%Plug.Conn{}, instance: name, tier: :heavy, by: fn _ -> "agent-7" end, cost: fn _ -> 2 end)
    assert Tollgate.peek(name, "agent-7", {:http, :heavy}).remaining == 4
  end

  test "without an id it is the address: 60 a minute, 5 for registering" do
    name = start()
    conn = %Plug.Conn{remote_ip: {192, 0, 2, 7}}
    answers = for _ <- 1..6, do: call(conn, instance: name, action: "post_onboard_register")
    assert Enum.map(answers, & &1.status) == [nil, nil, nil, nil, nil, 429]
    assert header(call(conn, instance: name, action: "get_agents"), "x-ratelimit-limit") == "60"
    assert Tollgate.Conduct.rate_limited?(name, "ip:192.0.2.7")
    # Another address is another agent, and an address can be exempt.
    assert call(%{conn | remote_ip: {192, 0, 2, 8}}, instance: name, action: "post_onboard_register").status == nil
    :ok = Tollgate.Control.exempt(name, "ip:192.0.2.7")
    allowed = call(conn, instance: name, action: "post_onboard_register")
    assert allowed.status == nil and header(allowed, "x-ratelimit-limit") == nil
  end

  test "whatever an application has for an id, its client does not get a 500" do
    name = start()

    for {id, agent} <- [
          {42, "42"},
          {:worker, "worker"},
          {-1, "-1"},
          {String.duplicate("x", 257), "sha256:" <> Base.encode16(:crypto.hash(:sha256, String.duplicate("x", 257)))},
          {<<255, 0>>, <<255, 0>>},
          {Bitwise.bsl(1, 5_000), "sha256:" <> Base.encode16(:crypto.hash(:sha256, to_string(Bitwise.bsl(1, 5_000))))}
        ] do
      call(of(id), instance: name, tier: :heavy)
      assert Tollgate.peek(name, agent, {:http, :heavy}).remaining == 9
    end

    # None at all is the address.
    for id <- [nil, "", false], do: call(of(id), instance: name, tier: :light)
    assert Tollgate.peek(name, "ip:127.0.0.1", {:http, :light}, plan: "unauthenticated").remaining == 57
    # What can only be a mistake in the application is one.
    assert_raise ArgumentError, ~r/an agent is a binary/, fn -> call(of(%{id: 7}), instance: name, tier: :heavy) end
  end

  test "the assign of those who have authenticated comes first" do
    name = start()
    conn = %{of("agent-7") | assigns: %{agent_id: "claimed", authenticated_agent: "verified"}}
    call(conn, instance: name, tier: :heavy)
    assert Tollgate.peek(name, "verified", {:http, :heavy}).remaining == 9
    assert Tollgate.peek(name, "claimed", {:http, :heavy}).remaining == 10
  end

  test "peers of a Unix socket have no address, and are one agent" do
    name = start()
    options = Tollgate.Plug.init(instance: name, tier: :heavy)

    for remote_ip <- [{:local, "/run/hub.sock"}, {:local, ""}, :unspecified, nil] do
      refute Tollgate.Plug.call(%Plug.Conn{remote_ip: remote_ip}, options).halted
    end

    assert Tollgate.peek(name, "unix", {:http, :heavy}, plan: "unauthenticated").remaining == 1
  end

  test "networks that are allowed have no limit" do
    name = start()
    options = Tollgate.Plug.init(instance: name, tier: :heavy, allow: ["192.0.2.0/24", "2001:db8::/32", "198.51.100.7"])

    allowed = [
      {192, 0, 2, 9},
      {0x2001, 0xDB8, 9, 9, 9, 9, 9, 9},
      {0, 0, 0, 0, 0, 0xFFFF, 0xC000, 0x0207},
      {198, 51, 100, 7}
    ]

    for remote_ip <- allowed, _ <- 1..20 do
      conn = Tollgate.Plug.call(%Plug.Conn{remote_ip: remote_ip}, options)
      assert {conn.halted, header(conn, "x-ratelimit-limit")} == {false, nil}
    end

    for remote_ip <- [{192, 0, 3, 1}, {198, 51, 100, 8}, {0x2001, 0xDB9, 0, 0, 0, 0, 0, 1}, {:local, ""}] do
      assert header(Tollgate.Plug.call(%Plug.Conn{remote_ip: remote_ip}, options), "x-ratelimit-limit") == "5"
    end

    for wrong <- ["192.0.2.1/24", "192.0.2.0/33", "192.0.2/24", "2001:db8::/129", "x", "", 7, "1.2.3.4/"] do
      assert_raise ArgumentError, ~r/a network is/, fn -> Tollgate.Plug.init(tier: :heavy, allow: [wrong]) end
    end
  end

  test "two plugs in a row report the limit with less left, and a sent response is refused as by Plug" do
    name = start()
    light = Tollgate.Plug.init(instance: name, tier: :light)
    heavy = Tollgate.Plug.init(instance: name, tier: :heavy)

    for plugs <- [[light, heavy], [heavy, light]] do
      conn = Enum.reduce(plugs, of("agent-#{inspect(plugs == [light, heavy])}"), &Tollgate.Plug.call(&2, &1))
      assert header(conn, "x-ratelimit-limit") == "10"
      assert length(for {"x-ratelimit-" <> _, _} <- conn.resp_headers, do: 1) == 3
    end

    sent = Plug.Conn.send_resp(of("agent-7"), 200, "")
    assert_raise Plug.Conn.AlreadySentError, fn -> Tollgate.Plug.call(sent, heavy) end
  end

  test "addresses are written the same way for the same client" do
    for {address, text} <- [
          {{192, 0, 2, 7}, "192.0.2.7"},
          {{0, 0, 0, 0, 0, 0xFFFF, 0xC000, 0x0207}, "192.0.2.7"},
          {{0x2001, 0xDB8, 1, 2, 3, 4, 5, 6}, "2001:db8:1:2::/64"},
          {{0x2001, 0xDB8, 1, 2, 9, 9, 9, 9}, "2001:db8:1:2::/64"}
        ] do
      assert Tollgate.Plug.address(address) == text
    end
  end

  test "the body is JSON whatever the agent is called" do
    name = start()

    for agent <- [~s("a"), "line\nbreak", <<255, 0>>, String.duplicate("x", 5_000)] do
      conn = fn -> call(of(agent), instance: name, tier: :heavy, agent_in_body: true) end
      for _ <- 1..10, do: conn.()
      denied = conn.()
      assert denied.status == 429
      named = TestJSON.decode!(denied.resp_body)["agent_id"]

      case agent do
        <<255, 0>> -> assert named == %{"base64" => Base.encode64(agent)}
        <<_::binary-size(257), _::binary>> -> assert "sha256:" <> _ = named
        _ -> assert named == agent
      end
    end
  end

  test "what no wait helps, and what has no room, are answers of their own" do
    name = start(agents: 1, on_full: :deny)
    conn = call(of("agent-1"), instance: name, tier: :heavy, cost: 11)
    assert conn.status == 429 and conn.halted
    assert TestJSON.decode!(conn.resp_body) == %{"error" => "rate_limited", "retry_after_ms" => nil, "tier" => "heavy"}
    assert header(conn, "retry-after") == nil
    assert header(conn, "x-ratelimit-remaining") == "10"
    answers = for at <- 1..1_000, do: call(of("agent-#{at}"), instance: name, tier: :light)
    assert %{halted: true} = full = Enum.find(answers, &(&1.status == 503))
    assert header(full, "retry-after") == "1"
  end

  test "headers can be left out, and invalid options are refused" do
    name = start()
    conn = call(of("agent-7"), instance: name, tier: :heavy, headers: false)
    assert header(conn, "x-ratelimit-limit") == nil
    assert_raise ArgumentError, fn -> Tollgate.Plug.init([]) end
    assert_raise ArgumentError, fn -> Tollgate.Plug.init(tier: :heavy, action: "post_task") end
    assert_raise ArgumentError, fn -> Tollgate.Plug.init(tier: :heavy, colour: 1) end
  end
end
