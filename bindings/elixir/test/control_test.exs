defmodule Tollgate.ControlTest do
  use Tollgate.Case, async: true

  alias Tollgate.Error

  doctest Tollgate.Control

  # The examples share the default instance.
  setup context do
    if context.test_type == :doctest, do: Tollgate.forget(Tollgate, "agent-4")
    :ok
  end

  @moduletag :tmp_dir

  describe "exemption" do
    test "comes first, and nothing is charged" do
      name = start()
      :ok = Tollgate.Control.exempt(name, "agent-7")

      for _ <- 1..100_000 do
        {:allow, :exempt} = Tollgate.check(name, "agent-7", {:ws, :heavy})
      end

      assert Tollgate.check(name, "agent-7", {:ws, :heavy}, counted: true) == {:allow, :exempt}
      assert Tollgate.check_many(name, [{"agent-7", {:ws, :heavy}}]) == [{:allow, :exempt}]
      assert Tollgate.peek(name, "agent-7", {:ws, :heavy}) == :exempt
      assert Tollgate.Hub.capacity(name, "agent-7", :ws, :heavy) == :infinity
      assert Tollgate.Hub.get_limits(name, "agent-7", :ws, :heavy) == :exempt
      assert Tollgate.Control.exempt?(name, "agent-7")
      :ok = Tollgate.Control.unexempt(name, "agent-7")
      refute Tollgate.Control.exempt?(name, "agent-7")
      assert Tollgate.check(name, "agent-7", {:ws, :heavy}) == {:allow, 9}
    end

    test "the dashboard of the hub always is, whatever the list says" do
      name = start()
      assert Tollgate.check(name, "dashboard", {:ws, :heavy}) == {:allow, :exempt}
      assert {:error, %Error{reason: :always_exempt, message: message}} = Tollgate.Control.unexempt(name, "dashboard")
      assert message =~ "dashboard"
      :ok = Tollgate.Control.set_allowlist(name, [])
      assert Tollgate.Control.exempt?(name, "dashboard")
      assert Tollgate.Control.allowlist(name) == ["dashboard"]
      other = start(always_exempt: ["probe"])
      assert Tollgate.Control.exempt?(other, "dashboard")
      assert Tollgate.Control.exempt?(other, "probe")
    end

    test "a new list takes the place of the old one, and leaves the rest of an assignment alone" do
      name = start(always_exempt: [])
      :ok = Tollgate.Control.set_override(name, "agent-2", :heavy, "20/minute")
      :ok = Tollgate.Control.set_allowlist(name, ["agent-1", "agent-2"])
      assert Tollgate.Control.allowlist(name) == ["agent-1", "agent-2"]
      :ok = Tollgate.Control.set_allowlist(name, ["agent-3", "agent-3", "agent-1"])
      assert Tollgate.Control.allowlist(name) == ["agent-1", "agent-3"]

      assert Tollgate.Control.assignment(name, "agent-2").overrides == %{
               "ws/heavy" => "20/minute",
               "http/heavy" => "20/minute"
             }

      assert Map.keys(Tollgate.Control.assignments(name)) == ["agent-1", "agent-2", "agent-3"]
      assert_raise ArgumentError, fn -> Tollgate.Control.set_allowlist(name, "agent-1") end
      assert_raise ArgumentError, ~r/1 to 256/, fn -> Tollgate.Control.set_allowlist(name, ["agent-9", ""]) end
      refute Tollgate.Control.exempt?(name, "agent-9")
    end
  end

  describe "overrides" do
    test "of a tier hold in both channels, at once, and begin with full lanes in the hub" do
      name = start()
      drain(name, "agent-7", {:ws, :heavy}, 10)
      drain(name, "agent-7", {:ws, :light}, 120)
      :ok = Tollgate.Control.set_override(name, "agent-7", :heavy, "100/minute")
      assert Tollgate.check(name, "agent-7", {:ws, :heavy}) == {:allow, 99}
      assert Tollgate.check(name, "agent-7", {:http, :heavy}) == {:allow, 99}
      assert Tollgate.check(name, "agent-7", {:ws, :light}) == {:allow, 119}
      assert Tollgate.Hub.capacity(name, "agent-7", :http, :heavy) == 100
      assert Tollgate.Hub.get_limits(name, "agent-7", :http, :heavy) == {100_000, 100_000 / 60_000}
      assert Tollgate.check(name, "agent-8", {:ws, :heavy}) == {:allow, 9}
    end

    test "can be of one lane alone" do
      name = start()

      for lane <- ["ws/heavy", {:ws, :heavy}] do
        :ok = Tollgate.Control.set_override(name, "agent-7", lane, "3/minute burst 5")
        assert Tollgate.check(name, "agent-7", {:ws, :heavy}) == {:allow, 4}
        assert Tollgate.check(name, "agent-7", {:http, :heavy}) == {:allow, 9}
        :ok = Tollgate.Control.remove_override(name, "agent-7", lane)
        assert Tollgate.check(name, "agent-7", {:ws, :heavy}) == {:allow, 9}
      end
    end

    test "keep the debt under a policy that says so" do
      name = start(policy: [lanes: [{"api/read", "10/minute"}]])
      drain(name, "agent-7", {:api, :read}, 10)
      :ok = Tollgate.Control.set_override(name, "agent-7", :read, "20/minute")
      assert {:deny, _} = Tollgate.check(name, "agent-7", {:api, :read})
    end

    test "that are invalid are refused, say why, and change nothing" do
      name = start()

      for {lane, limit, reason} <- [
            {:heavy, "0/minute", :bad_limit},
            {:heavy, "many", :bad_limit},
            {:enormous, "1/minute", :unknown_lane},
            {"ws/enormous", "1/minute", :unknown_lane},
            {<<255>>, "1/minute", :not_utf8}
          ] do
        assert {:error, %Error{reason: ^reason, message: message}} =
                 Tollgate.Control.set_override(name, "agent-7", lane, limit)

        assert message != ""
      end

      assert {:error, %Error{reason: :unknown_lane}} = Tollgate.Control.remove_override(name, "agent-7", :enormous)
      assert_raise ArgumentError, fn -> Tollgate.Control.set_override(name, "agent-7", :heavy, 100) end
      assert_raise ArgumentError, fn -> Tollgate.Control.set_override(name, "", :heavy, "1/minute") end
      assert_raise ArgumentError, fn -> Tollgate.Control.set_override(name, "agent-7", 3, "1/minute") end
      assert Tollgate.Control.assignments(name) |> Map.keys() == ["dashboard"]
      # The owner has survived all of it.
      assert Tollgate.Control.set_override(name, "agent-7", :heavy, "1/minute") == :ok
    end
  end

  test "a plan of the request stands in, and one that is assigned goes before" do
    name = start(policy: [lanes: [{"api/read", "10/minute"}], plans: [{"pro", [{"api/read", "100/minute"}]}]])
    assert Tollgate.check(name, "a", {:api, :read}, plan: "pro") == {:allow, 99}
    assert Tollgate.check(name, "b", {:api, :read}, plan: :pro) == {:allow, 99}
    assert Tollgate.check(name, "c", {:api, :read}, plan: :pro, cost: 2, counted: true) == {:allow, 98}
    assert Tollgate.check(name, "d", {:api, :read}) == {:allow, 9}
    :ok = Tollgate.Control.assign(name, "d", :pro)
    assert Tollgate.Hub.capacity(name, "d", :api, :read) == 100
    assert Tollgate.Control.assignment(name, "d").plan == "pro"
    :ok = Tollgate.Control.assign(name, "d", nil)
    assert Tollgate.Hub.capacity(name, "d", :api, :read) == 10
    assert {:error, %Error{reason: :unknown_plan}} = Tollgate.Control.assign(name, "d", "gold")
    assert_raise ArgumentError, ~r/no plan/, fn -> Tollgate.check(name, "d", {:api, :read}, plan: "gold") end
  end

  test "another policy changes the numbers of everybody at once" do
    name = start(policy: [lanes: [{"api/read", "10/minute"}]])
    drain(name, "agent-7", {:api, :read}, 3)
    :ok = Tollgate.Control.replace_policy(name, lanes: [{"api/read", "20/minute"}])
    assert Tollgate.Hub.capacity(name, "agent-7", :api, :read) == 20
    assert {:error, %Error{reason: :other_lanes}} = Tollgate.Control.replace_policy(name, :hub)
    assert {:error, %Error{reason: :bad_policy}} = Tollgate.Control.replace_policy(name, lanes: [{"api/read", "x"}])
    assert Tollgate.Hub.capacity(name, "agent-7", :api, :read) == 20
  end

  describe "with a store" do
    test "what was decided is in force again after a restart", %{tmp_dir: folder} do
      options = [store: Path.join([folder, "new", "limits.json"]), name: __MODULE__.Kept, clock: :manual]
      start_supervised!({Tollgate, options})
      :ok = Tollgate.Control.set_override(__MODULE__.Kept, "agent-7", :heavy, "100/minute")
      :ok = Tollgate.Control.set_override(__MODULE__.Kept, "gone", :heavy, "100/minute")
      :ok = Tollgate.Control.remove_overrides(__MODULE__.Kept, "gone")
      :ok = Tollgate.Control.set_allowlist(__MODULE__.Kept, [<<255, 0>>, "agent-8"])
      :ok = Tollgate.Control.assign(__MODULE__.Kept, "ip:10.0.0.1", "unauthenticated")
      decided = Tollgate.Control.assignments(__MODULE__.Kept)
      stop_supervised!({Tollgate, __MODULE__.Kept})

      start_supervised!({Tollgate, options})
      assert Tollgate.check(__MODULE__.Kept, "agent-7", {:ws, :heavy}) == {:allow, 99}
      assert Tollgate.check(__MODULE__.Kept, <<255, 0>>, {:ws, :heavy}) == {:allow, :exempt}
      assert Tollgate.check(__MODULE__.Kept, "ip:10.0.0.1", {:http, :heavy}) == {:allow, 4}
      assert Tollgate.Control.assignments(__MODULE__.Kept) == decided
      refute Map.has_key?(decided, "gone")
    end

    test "a change that a killed owner was making is in the file and in force, or neither", %{tmp_dir: folder} do
      path = Path.join(folder, "limits.json")
      name = start(store: path)
      :ok = Tollgate.Control.set_override(name, "agent-7", :heavy, "100/minute")
      owner = Process.whereis(name)
      Process.exit(owner, :kill)
      eventually(fn -> Process.whereis(name) not in [nil, owner] end)
      # The limiter keeps its file, and goes on writing it.
      :ok = Tollgate.Control.exempt(name, "agent-9")
      assert File.read!(path) =~ "agent-9"
      assert Tollgate.Control.exempt?(name, "dashboard")
      assert Tollgate.Hub.capacity(name, "agent-7", :ws, :heavy) == 100
    end

    test "a change that cannot be written is not made", %{tmp_dir: folder} do
      path = Path.join(folder, "limits.json")
      name = start(store: path)
      :ok = Tollgate.Control.set_override(name, "agent-7", :heavy, "100/minute")
      # Somebody else has written the file: nothing overwrites that.
      File.write!(path, "{}")
      assert {:error, %Error{reason: :store}} = Tollgate.Control.set_override(name, "agent-7", :heavy, "200/minute")
      assert {:error, %Error{reason: :store}} = Tollgate.Control.set_overrides(name, "agent-7", heavy: "200/minute")
      assert {:error, %Error{reason: :store}} = Tollgate.Control.set_allowlist(name, ["agent-8"])
      assert Tollgate.Hub.capacity(name, "agent-7", :ws, :heavy) == 100
      refute Tollgate.Control.exempt?(name, "agent-8")
    end

    test "a file that cannot be used keeps the instance from starting, and says why", %{tmp_dir: folder} do
      Process.flag(:trap_exit, true)
      other = Path.join(folder, "text.json")

      for text <- ["not a table", "", "{", ~s({"version": 1, "agents": [), ~s({"version": 2, "agents": []}), <<0, 255>>] do
        File.write!(other, text)
        assert {:error, %ArgumentError{message: message}} = Tollgate.start_link(name: :unreadable, store: other)
        assert message =~ "text.json"
        # It is left as it is.
        assert File.read!(other) == text
      end

      assert_raise ArgumentError, fn -> Tollgate.start_link(name: :unreadable, store: :here) end
    end

    test "a file that was cut off at any place starts no instance without its agents", %{tmp_dir: folder} do
      Process.flag(:trap_exit, true)
      path = Path.join(folder, "limits.json")
      name = start(store: path)
      for at <- 1..20, do: :ok = Tollgate.Control.set_override(name, "agent-#{at}", :heavy, "#{at}/minute")
      stop_supervised!({Tollgate, name})
      text = File.read!(path)

      for bytes <- Enum.take_every(0..(byte_size(text) - 3), 17) do
        File.write!(path, binary_part(text, 0, bytes))
        assert {:error, %ArgumentError{}} = Tollgate.start_link(name: :cut, store: path)
      end
    end

    test "a store in use is refused, in this VM and in others", %{tmp_dir: folder} do
      Process.flag(:trap_exit, true)
      path = Path.join(folder, "limits.json")
      start(store: path)
      assert {:error, %ArgumentError{message: message}} = Tollgate.start_link(name: :second, store: path)
      assert message =~ "is locked by"

      {output, 0} =
        Tollgate.Child.run("""
        {:ok, _} = Application.ensure_all_started(:tollgate)
        Process.flag(:trap_exit, true)
        {:error, error} = Tollgate.start_link(name: Second, store: #{inspect(path)})
        IO.puts(error.message)
        """)

      assert output =~ "is locked by"
    end

    test "what the policy no longer has is set aside, and the rest is in force", %{tmp_dir: folder} do
      path = Path.join(folder, "limits.json")
      old = [lanes: [{"api/old", "1/s"}, {"api/kept", "1/s"}], plans: [{"gone", [{"api/kept", "5/s"}]}]]
      name = :"aside#{System.unique_integer([:positive])}"
      options = [name: name, store: path, clock: :manual]
      start_supervised!({Tollgate, [policy: old] ++ options})
      :ok = Tollgate.Control.set_overrides(name, "agent-7", %{"api/old" => "2/s", "api/kept" => "3/s"})
      :ok = Tollgate.Control.assign(name, "agent-8", "gone")
      :ok = Tollgate.Control.exempt(name, <<255, 0>>)
      :ok = Tollgate.Control.set_override(name, "agent-9", "api/kept", "4/s")
      stop_supervised!({Tollgate, name})

      log =
        ExUnit.CaptureLog.capture_log(fn ->
          start_supervised!({Tollgate, [policy: [lanes: [{"api/kept", "1/s"}]]] ++ options})
        end)

      assert log =~ "api/old" and log =~ "agent-8" and log =~ path <> ".aside"
      assert Tollgate.Control.limit_of(name, "agent-7", {:api, :kept}) == "3/second"
      assert Tollgate.Control.limit_of(name, "agent-9", {:api, :kept}) == "4/second"
      assert Tollgate.Control.exempt?(name, <<255, 0>>)
      assert Tollgate.Control.assignment(name, "agent-8").plan == nil

      aside =
        (path <> ".aside") |> File.read!() |> String.split("\n", trim: true) |> Enum.map(&Tollgate.TestJSON.decode!/1)

      assert %{"agent" => "agent-7", "overrides" => %{"api/old" => "2/second"}} in aside
      assert %{"agent" => "agent-8", "plan" => "gone"} in aside
      assert length(aside) == 2
      # And it stays so.
      :ok = Tollgate.Control.set_override(name, "agent-10", "api/kept", "9/s")
      stop_supervised!({Tollgate, name})
      start_supervised!({Tollgate, [policy: [lanes: [{"api/kept", "1/s"}]]] ++ options})
      assert Tollgate.Control.limit_of(name, "agent-7", {:api, :kept}) == "3/second"
      assert Tollgate.Control.limit_of(name, "agent-10", {:api, :kept}) == "9/second"
    end

    test "a policy that was put in force is kept, until the options have another", %{tmp_dir: folder} do
      path = Path.join(folder, "limits.json")
      name = :"policy#{System.unique_integer([:positive])}"
      started = fn policy -> start_supervised!({Tollgate, name: name, store: path, clock: :manual, policy: policy}) end
      limit = fn -> Tollgate.Control.limit_of(name, "agent-7", {:api, :read}) end
      policy = [lanes: [{"api/read", "1/minute"}, {"api/write", "1/minute"}]]
      started.(policy)
      :ok = Tollgate.Control.set_defaults(name, %{read: "2/minute"})
      stop_supervised!({Tollgate, name})
      started.(policy)
      assert limit.() == "2/minute"
      :ok = Tollgate.Control.replace_policy(name, lanes: [{"api/read", "3/minute"}, {"api/write", "1/minute"}])
      stop_supervised!({Tollgate, name})
      started.(policy)
      assert limit.() == "3/minute"
      :ok = Tollgate.Control.restore_policy(name)
      assert limit.() == "1/minute"
      stop_supervised!({Tollgate, name})
      started.(policy)
      assert limit.() == "1/minute"
      :ok = Tollgate.Control.set_defaults(name, %{read: "4/minute"})
      stop_supervised!({Tollgate, name})
      other = [lanes: [{"api/read", "5/minute"}, {"api/write", "1/minute"}]]
      log = ExUnit.CaptureLog.capture_log(fn -> started.(other) end)
      assert limit.() == "5/minute"
      assert log =~ "set aside" and File.exists?(path <> ".policy.toml.aside")
    end
  end

  test "operators' mistakes are answers that say what there is" do
    name = start()
    alias Tollgate.Control
    assert {:error, %Error{reason: :unknown_plan, message: message}} = Control.assign(name, "agent-7", "gold")
    assert message =~ "gold"
    assert {:error, %Error{reason: :unknown_plan}} = Control.assign(name, "agent-7", :gold)
    assert {:error, %Error{reason: :bad_limit}} = Control.set_override(name, "agent-7", :heavy, "10/fortnight")
    assert {:error, %Error{reason: :unknown_lane}} = Control.set_overrides(name, "agent-7", %{"ws/enormous" => "1/s"})
    assert {:error, %Error{reason: :unknown_lane}} = Control.set_defaults(name, %{"enormous" => "1/s"})
    assert {:error, %Error{reason: :bad_policy}} = Control.set_defaults(name, %{heavy: "lots"})
    assert {:error, %Error{reason: :bad_policy, message: message}} = Control.replace_policy(name, {:toml, "[lanes"})
    assert message =~ "[lanes" or message =~ "line" or message =~ "table"
    assert {:error, %Error{reason: :bad_policy}} = Control.replace_policy(name, :nonsense)
    assert {:error, %Error{reason: :other_lanes}} = Control.replace_policy(name, lanes: [{"a", "1/s"}])
    assert Control.assignments(name) == %{"dashboard" => %{plan: nil, overrides: %{}, exempt: true}}
    # Mistakes of the programmer are not.
    for wrong <- [
          fn -> Control.set_overrides(name, "agent-7", 5) end,
          fn -> Control.set_overrides(name, "a", %{heavy: 5}) end
        ] do
      assert_raise ArgumentError, wrong
    end
  end

  test "limits of several lanes are set as text of any policy, whatever its lanes are called" do
    lanes = [{"ab/ü", "1/minute"}, {~s(a"b\\c), "1/minute"}, {"plain", "1/minute"}, {"plain/er", "1/minute"}]
    name = start(policy: [lanes: lanes, plans: [{"pro", [{"plain", "7/minute"}]}]])

    for {lane, at} <- Enum.with_index(lanes, 2),
        do: :ok = Tollgate.Control.set_defaults(name, %{elem(lane, 0) => "#{at}/minute"})

    assert for(%{limit: limit} <- Tollgate.Control.lanes(name), do: limit) == ~w(2/minute 3/minute 4/minute 5/minute)
    assert Tollgate.Control.policy(name) =~ "7/minute"
  end
end
