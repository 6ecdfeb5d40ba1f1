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
    assert_raise ArgumentError, ~r/no plan/, fn -> Tollgate.Control.assign(name, "d", "gold") end
    assert_raise ArgumentError, ~r/no plan/, fn -> Tollgate.check(name, "d", {:api, :read}, plan: "gold") end
  end

  test "another policy changes the numbers of everybody at once" do
    name = start(policy: [lanes: [{"api/read", "10/minute"}]])
    drain(name, "agent-7", {:api, :read}, 3)
    :ok = Tollgate.Control.replace_policy(name, lanes: [{"api/read", "20/minute"}])
    assert Tollgate.Hub.capacity(name, "agent-7", :api, :read) == 20
    assert {:error, %Error{reason: :other_lanes}} = Tollgate.Control.replace_policy(name, :hub)
    assert_raise ArgumentError, fn -> Tollgate.Control.replace_policy(name, lanes: [{"api/read", "x"}]) end
    assert Tollgate.Hub.capacity(name, "agent-7", :api, :read) == 20
  end

  describe "with a store" do
    test "what was decided is in force again after a restart", %{tmp_dir: folder} do
      options = [store: Path.join([folder, "new", "limits.dets"]), name: __MODULE__.Kept, clock: :manual]
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

    test "the file goes before a change that a killed owner had not written", %{tmp_dir: folder} do
      name = start(store: Path.join(folder, "limits.dets"))
      :ok = Tollgate.Control.set_override(name, "agent-7", :heavy, "100/minute")
      {reference, _} = Tollgate.Instance.find(name)
      # As if it had been killed between the two.
      :ok = Tollgate.Native.set_exempt(reference, "agent-9", true)
      owner = Process.whereis(name)
      Process.exit(owner, :kill)
      eventually(fn -> Process.whereis(name) not in [nil, owner] end)
      :sys.get_state(name)
      refute Tollgate.Control.exempt?(name, "agent-9")
      assert Tollgate.Control.exempt?(name, "dashboard")
      assert Tollgate.Hub.capacity(name, "agent-7", :ws, :heavy) == 100
    end

    test "a change that cannot be written is not made", %{tmp_dir: folder} do
      name = start(store: Path.join(folder, "limits.dets"))
      :ok = Tollgate.Control.set_override(name, "agent-7", :heavy, "100/minute")
      empty = String.to_charlist(Path.join(folder, "empty.dets"))
      {:ok, table} = :dets.open_file(make_ref(), file: empty)
      :ok = :dets.close(table)
      {:ok, read_only} = :dets.open_file(make_ref(), file: empty, access: :read)

      for store <- [read_only, :closed] do
        :sys.replace_state(name, &%{&1 | store: store})
        assert {:error, %Error{reason: :store}} = Tollgate.Control.set_override(name, "agent-7", :heavy, "200/minute")
        assert {:error, %Error{reason: :store}} = Tollgate.Control.set_allowlist(name, ["agent-8"])
        assert Tollgate.Hub.capacity(name, "agent-7", :ws, :heavy) == 100
        refute Tollgate.Control.exempt?(name, "agent-8")
      end
    end

    test "a file that cannot be used keeps the instance from starting, and says why", %{tmp_dir: folder} do
      Process.flag(:trap_exit, true)
      other = Path.join(folder, "text.dets")
      File.write!(other, "not a table")
      assert {:error, %ArgumentError{message: message}} = Tollgate.start_link(name: :unreadable, store: other)
      assert message =~ "text.dets"
      assert {:error, %ArgumentError{}} = Tollgate.start_link(name: :unreadable, store: :here)

      path = Path.join(folder, "lanes.dets")
      start_supervised!({Tollgate, name: :lanes, policy: [lanes: [{"old/lane", "1/s"}]], store: path})
      :ok = Tollgate.Control.set_override(:lanes, "agent-7", "old/lane", "2/s")
      stop_supervised!({Tollgate, :lanes})
      assert {:error, %ArgumentError{message: message}} = Tollgate.start_link(name: :lanes, store: path)
      assert message =~ "old/lane"
    end
  end
end
