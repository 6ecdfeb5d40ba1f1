//! Engines: the threads through which a limiter settles with the store, and hears
//! what operators decide on other machines.

use std::ffi::{CStr, c_char, c_void};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;
use tollgate::ffi::border::{Failure, Tagged, guard_error, hand_over, out, tagged_in, take_back, text};
use tollgate::ffi::{Error, Limiter, Status};
use tollgate_redis::{EngineBuilder, EngineError, Tls};

/// Which servers the URLs of tollgate_engine_options name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Servers {
    /// One server.
    One = 0,
    /// Sentinels, which are asked for the master anew for each connection.
    Sentinel = 1,
    /// Some servers of a Redis Cluster; they say which others there are.
    Cluster = 2,
}

/// Where the store is, and who this machine is to it. Zero in every member but
/// struct_size and urls is the default; a text that is not there is NULL with the
/// length 0. Texts are UTF-8.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct EngineOptions {
    /// Set it to sizeof(tollgate_engine_options).
    pub struct_size: u32,
    /// A tollgate_servers.
    pub servers: i32,
    /// A URL, or several with a space between two: redis://host:port/database, whose
    /// port and database may be left out, rediss:// for TLS, or redis+unix:///path. One
    /// may have user:password@ before the host.
    pub urls: *const c_char,
    /// Its length in bytes.
    pub urls_len: usize,
    /// With TOLLGATE_SERVERS_SENTINEL: the master's name, as in "sentinel monitor NAME".
    pub master: *const c_char,
    /// Its length in bytes.
    pub master_len: usize,
    /// The user on the servers, unless the URL has one. NULL: their default user.
    pub user: *const c_char,
    /// Its length in bytes.
    pub user_len: usize,
    /// The user's password. No error and no status shows it.
    pub password: *const c_char,
    /// Its length in bytes.
    pub password_len: usize,
    /// The user on the sentinels.
    pub sentinel_user: *const c_char,
    /// Its length in bytes.
    pub sentinel_user_len: usize,
    /// The password on the sentinels.
    pub sentinel_password: *const c_char,
    /// Its length in bytes.
    pub sentinel_password_len: usize,
    /// For rediss://: the certificates to believe, as PEM. NULL: those of the system.
    pub tls_ca: *const c_char,
    /// Its length in bytes.
    pub tls_ca_len: usize,
    /// The certificate to show, as PEM. NULL: none.
    pub tls_certificate: *const c_char,
    /// Its length in bytes.
    pub tls_certificate_len: usize,
    /// Its private key, as PEM.
    pub tls_key: *const c_char,
    /// Its length in bytes.
    pub tls_key_len: usize,
    /// How many machines there are at least, up to 65,535. 0: 1. More are counted as
    /// they come; set it to the usual number, so that a machine that starts without
    /// the store knows its share.
    pub nodes_at_least: u32,
    /// 0.
    pub reserved: u32,
    /// How long an answer may take before the store counts as lost, 50 ms to 1 s. 0: 200 ms.
    pub timeout_ns: u64,
}

const _: () = assert!(size_of::<EngineOptions>() == 168);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for EngineOptions {
    const SIZE_MIN: u32 = 168;
}

/// A running engine.
pub struct Engine {
    pub(crate) engine: tollgate_redis::Engine,
    pub(crate) limiter: Arc<Limiter>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.limiter.release_engine();
    }
}

/// The texts of the options.
struct Texts<'a> {
    urls: &'a str,
    master: &'a str,
    user: Option<&'a str>,
    password: Option<&'a str>,
    sentinel_user: Option<&'a str>,
    sentinel_password: Option<&'a str>,
    tls_ca: Option<&'a str>,
    tls_certificate: Option<&'a str>,
    tls_key: Option<&'a str>,
}

impl EngineOptions {
    /// # Safety
    ///
    /// Each text is NULL or readable for its length, for as long as the result is used.
    unsafe fn texts<'a>(&self) -> Result<Texts<'a>, Failure> {
        let optional = |name: &str, pointer: *const c_char, len: usize| {
            if pointer.is_null() && len == 0 {
                return Ok(None);
            }
            // SAFETY: NULL or readable for its length, as the caller guarantees.
            let text = unsafe { text(pointer, len) };
            text.map(Some).map_err(|status| Failure::from(status).about(&name))
        };
        Ok(Texts {
            urls: optional("urls", self.urls, self.urls_len)?.ok_or(Status::NullPointer)?,
            master: optional("master", self.master, self.master_len)?.unwrap_or_default(),
            user: optional("user", self.user, self.user_len)?,
            password: optional("password", self.password, self.password_len)?,
            sentinel_user: optional("sentinel_user", self.sentinel_user, self.sentinel_user_len)?,
            sentinel_password: optional("sentinel_password", self.sentinel_password, self.sentinel_password_len)?,
            tls_ca: optional("tls_ca", self.tls_ca, self.tls_ca_len)?,
            tls_certificate: optional("tls_certificate", self.tls_certificate, self.tls_certificate_len)?,
            tls_key: optional("tls_key", self.tls_key, self.tls_key_len)?,
        })
    }

    fn builder(&self, texts: &Texts<'_>) -> Result<EngineBuilder, Failure> {
        if self.reserved != 0 {
            return Err(refused("reserved is not 0; clear the struct, then fill it"));
        }
        let mut urls = texts.urls.split(' ').filter(|url| !url.is_empty());
        let is = |servers: Servers| self.servers == servers as i32;
        if !is(Servers::Sentinel) && !texts.master.is_empty() {
            return Err(refused("master is for TOLLGATE_SERVERS_SENTINEL; leave it NULL"));
        }
        let builder = match () {
            () if is(Servers::One) => {
                let url = urls.next().unwrap_or_default();
                if urls.next().is_some() {
                    return Err(refused("urls has several; set servers to what they are of, or name one"));
                }
                EngineBuilder::new(url)
            }
            () if is(Servers::Sentinel) => EngineBuilder::sentinel(urls, texts.master),
            () if is(Servers::Cluster) => EngineBuilder::cluster(urls),
            () => return Err(refused("servers is none of tollgate_servers; clear the struct, then fill it")),
        };
        let mut builder = builder.map_err(explained)?;
        if let Some(user) = texts.user {
            builder = builder.user(user);
        }
        if let Some(password) = texts.password {
            builder = builder.password(password);
        }
        if let Some(user) = texts.sentinel_user {
            builder = builder.sentinel_user(user);
        }
        if let Some(password) = texts.sentinel_password {
            builder = builder.sentinel_password(password);
        }
        if let Some(tls) = tls(texts)? {
            builder = builder.tls(tls);
        }
        if self.nodes_at_least > 0 {
            let nodes = u16::try_from(self.nodes_at_least).ok().and_then(NonZeroU16::new);
            builder = builder.nodes_at_least(nodes.ok_or_else(|| refused("nodes_at_least is more than 65535"))?);
        }
        if self.timeout_ns > 0 {
            builder = builder.timeout(Duration::from_nanos(self.timeout_ns));
        }
        Ok(builder)
    }
}

fn tls(texts: &Texts<'_>) -> Result<Option<Tls>, Failure> {
    let tls = texts.tls_ca.map_or(Tls::new(), |ca| Tls::new().ca(ca));
    match (texts.tls_certificate, texts.tls_key) {
        (Some(certificate), Some(key)) => Ok(Some(tls.client(certificate, key))),
        (None, None) => Ok(texts.tls_ca.map(|_| tls)),
        _ => Err(refused("tls_certificate and tls_key go together; give both, or neither")),
    }
}

fn refused(problem: &'static str) -> Failure {
    Failure::new(Status::InvalidOption, &problem)
}

fn explained(error: EngineError) -> Failure {
    match error {
        EngineError::NotClustered => refused("the limiter shares no lanes; name cluster in its options"),
        EngineError::Thread { .. } => Failure::new(Status::OutOfMemory, &error),
        _ => Failure::new(Status::InvalidOption, &error),
    }
}

/// Whether the program's limiters are another library's: one that was linked beside
/// this one, and before it. Neither could read what the other has made.
///
/// Where this is a part of a program, or of a library that shows none of its
/// functions, nothing can come between.
fn is_beside_another() -> bool {
    /// The library that has this address.
    fn home(address: *const c_void) -> *mut c_void {
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: looks the address up, whatever it is; the place is writable.
        let is_known = unsafe { libc::dladdr(address, info.as_mut_ptr()) } != 0;
        // SAFETY: any bytes are a value, and zeros were.
        if is_known { unsafe { info.assume_init() }.dli_fbase } else { std::ptr::null_mut() }
    }
    /// That to which the program's calls of a function go.
    fn home_of(name: &CStr) -> *mut c_void {
        // SAFETY: a name that ends in a NUL.
        home(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
    }
    // A function that no library shows, so it is this one's.
    let own = home(is_beside_another as *const c_void);
    home_of(c"tollgate_engine_new") == own && home_of(c"tollgate_limiter_new") != own
}

/// Runs this with all signals blocked, for the thread that it starts: signals are
/// for the threads of the program.
fn without_signals<T>(call: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: writable.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first was filled, the second is writable.
    let is_blocked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let result = call();
    if is_blocked {
        // SAFETY: it was written when signals were blocked.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}

/// Starts an engine for a limiter that was built with cluster in its options.
/// Returns at once: until the store has answered it counts as lost, and checks do
/// as when_lost says. Free the engine with tollgate_engine_free; it keeps the
/// limiter's memory, so it makes no difference which of them is freed first.
///
/// A limiter has one engine at a time. In a process that was forked while one ran,
/// another one can be started for the copy of the limiter; it begins after about a
/// second, when the credit has ended that was copied too.
///
/// Status: INVALID_OPTION, STRUCT_SIZE, NOT_UTF8, TEXT_TOO_LONG, OUT_OF_MEMORY if
/// the system refuses a thread.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `options` is NULL or readable
/// for as many bytes as its struct_size says, and its texts are NULL or readable
/// for their lengths; `error_out` is NULL, or readable and writable for as many
/// bytes as its struct_size says; `engine_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_engine_new(
    limiter: *mut Limiter,
    options: *const EngineOptions,
    error_out: *mut Error,
    engine_out: *mut *mut Engine,
) -> Status {
    let start = || -> Result<(), Failure> {
        #[cfg(test)]
        panic_if_asked();
        let engine_out = out(engine_out)?;
        if is_beside_another() {
            return Err(refused("this limiter is libtollgate's; link libtollgate_redis in place of libtollgate"));
        }
        // SAFETY: NULL or alive, by this function's contract.
        let limiter = unsafe { Limiter::keep(limiter) }?;
        // SAFETY: NULL, or readable for as many bytes as its tag says, by this function's contract.
        let options = unsafe { tagged_in(options) }?;
        // SAFETY: readable for their lengths, by this function's contract.
        let texts = unsafe { options.texts() }?;
        let builder = options.builder(&texts)?;
        if !limiter.claim_engine() {
            return Err(refused("this limiter has an engine; free that one first"));
        }
        let engine = without_signals(|| builder.attach(Arc::clone(&limiter)));
        let engine = engine.inspect_err(|_| limiter.release_engine()).map_err(explained)?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(engine_out, Engine { engine, limiter }) };
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_error(error_out, start) }
}

/// Ends an engine and frees it. NULL is allowed. It gives the credit back that was
/// not spent, pays what is owed, writes what was decided here, and leaves the list of
/// machines; this waits for that, at most four time-outs. From then on checks take the store for lost, until
/// another engine is started.
///
/// # Safety
///
/// `engine` is NULL, or came from tollgate_engine_new, was not freed yet, and is in
/// use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_engine_free(engine: *mut Engine) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(engine) }
}

#[cfg(test)]
thread_local! {
    pub(crate) static PANICS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A panic on demand, so that tests see what becomes of one.
#[cfg(test)]
pub(crate) fn panic_if_asked() {
    if PANICS.replace(false) {
        panic!("a test asked for this panic");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tollgate_engine_status;
    use std::ptr::{null, null_mut};

    /// Rust reports each on stderr, as it should.
    #[test]
    fn a_panic_becomes_a_status() {
        let mut engine = null_mut();
        PANICS.set(true);
        // SAFETY: NULL, and places of ours.
        let status = unsafe { tollgate_engine_new(null_mut(), null(), null_mut(), &raw mut engine) };
        assert_eq!((status, engine), (Status::Panic, null_mut()));
        PANICS.set(true);
        // SAFETY: NULL.
        let status = unsafe { tollgate_engine_status(null(), null_mut(), null_mut(), 0) };
        assert_eq!((status, PANICS.get()), (Status::Panic, false));
        // SAFETY: NULL.
        let status = unsafe { tollgate_engine_status(null(), null_mut(), null_mut(), 0) };
        assert_eq!(status, Status::NullPointer);
    }
}
