# What the tests need beside the package: the NIF with a way to panic, another
# build of it, and the example made with Rustler.
Tollgate.Build.nif_that_panics()
Tollgate.Build.nif_of_another_layout()
Tollgate.Build.rustler()
Code.require_file("../native/tollgate_nif/rustler_example.ex", __DIR__)

# A busy machine is slow, and not wrong.
ExUnit.start(exclude: [:long], assert_receive_timeout: 60_000)
