#include "transport/ucx.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <ucs/debug/log_def.h>
#include <uct/api/uct.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "collectives/error.hpp"
#include "text.hpp"

namespace collectives {
namespace {

// Active messages by number.
enum Id : unsigned { kHello, kWelcome, kRefusal, kReady, kData, kNews, kControl };

constexpr std::size_t kAlignment = 64;                      // of payload
constexpr auto kPatience = std::chrono::milliseconds(100);  // with a peer that may be busy elsewhere
// Beyond this length a message is announced and fetched: a fetch costs a round trip, and saves copies on both sides.
// Over TCP on a loopback, 64 KiB take 18 us at once and 25 us fetched, and 5.5 GB/s against 2.5.
constexpr std::size_t kEagerBytes = 64 << 10;
constexpr std::size_t kEagerBytesOnFastDevice = 8 << 10;

bool on_fast_device() {
  static const bool fast = UcxNetwork::has_fast_device();
  return fast;
}

/// UCX's words, as part of a sentence.
std::string words(ucs_status_t status) {
  std::string text = ucs_status_string(status);
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1]))) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

void check(ucs_status_t status, std::string_view call) {
  if (status != UCS_OK) throw Error(Errc::system, fmt::format("transport ucx: {}: {}", call, words(status)));
}

// What UCX logs while it works for this thread's call into this library is not printed: what matters of it comes out
// as an error or a lost peer. UCX knows log levels of the whole process only, and the process may use UCX itself.
thread_local int quiet_calls = 0;

ucs_log_func_rc_t log_unless_quiet(const char*, unsigned, const char*, ucs_log_level_t,
                                   const ucs_log_component_config_t*, const char*, va_list) {
  return quiet_calls > 0 ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

class Quiet {
 public:
  Quiet() {
    static std::once_flag once;
    std::call_once(once, [] {
      char level[16] = "";  // anything but the default is the user's wish
      if (ucs_global_opts_get_value("LOG_LEVEL", level, sizeof level) != UCS_OK) return;
      for (char& letter : level) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
      if (std::string_view(level) == "warn") ucs_log_push_handler(log_unless_quiet);
    });
    ++quiet_calls;
  }
  ~Quiet() { --quiet_calls; }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

/// UCX's settings as it prints them: lines like "UCX_TLS=all".
std::string printed(const ucp_config_t* config) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* file = ::open_memstream(&text, &bytes);
  if (file == nullptr) return {};
  ucp_config_print(config, file, nullptr, UCS_CONFIG_PRINT_CONFIG);
  std::fclose(file);
  std::string result(text, bytes);
  std::free(text);
  return result;
}

ucp_config_t* read_config() {
  ucp_config_t* config = nullptr;
  check(ucp_config_read("COLLECTIVES", nullptr, &config), "ucp_config_read");
  const std::string settings = printed(config);
  const auto is = [&](std::string_view setting) { return settings.find(setting) != std::string::npos; };
  // A version of UCX that does not know one of these keeps what it has.
  if (is("_TLS=all\n")) ucp_config_modify(config, "TLS", "^sm");
  // What belongs to TCP alone, UCX 1.13 knows without the prefix; whichever name is unknown does nothing.
  constexpr std::pair<const char*, const char*> kTcp[] = {
      {"CONN_NB", "y"}, {"KEEPIDLE", "2s"}, {"KEEPINTVL", "1s"}, {"KEEPCNT", "3"}};
  for (const auto& [name, value] : kTcp) {
    ucp_config_modify(config, name, value);
    ucp_config_modify(config, fmt::format("TCP_{}", name).c_str(), value);
  }
  if (is("_KEEPALIVE_INTERVAL=20000000.00us\n")) {
    ucp_config_modify(config, "KEEPALIVE_INTERVAL", on_fast_device() ? "2s" : "inf");
  }
  return config;
}

std::uint64_t key_of(std::string_view token) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : token) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

}  // namespace

UcxWorker::UcxWorker() {
  const Quiet quiet;
  ucp_config_t* config = read_config();
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "collectives";
  ucs_status_t status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  check(status, "ucp_init");

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  worker_params.am_alignment = kAlignment;
  status = ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) ucp_cleanup(context_);
  check(status, "ucp_worker_create");
  if (ucp_worker_get_efd(worker_, &event_fd_) != UCS_OK) event_fd_ = -1;
}

UcxWorker::~UcxWorker() {
  const Quiet quiet;
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

std::string UcxWorker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  check(ucp_worker_get_address(worker_, &address, &bytes), "ucp_worker_get_address");
  std::string text(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return text;
}

UcxNetwork::UcxNetwork() : worker_(std::make_unique<UcxWorker>()), address_(worker_->address()) {}

std::unique_ptr<Wire> UcxNetwork::connect(const Everyone& everyone) {
  if (!worker_) throw Error(Errc::invalid_argument, "transport ucx: this network is connected already");
  return std::make_unique<UcxTransport>(std::move(worker_), everyone);
}

bool UcxNetwork::has_fast_device() {
  const Quiet quiet;
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return false;
  bool found = false;
  for (unsigned c = 0; c < count && !found; ++c) {
    uct_component_attr_t attributes{};
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (uct_component_query(components[c], &attributes) != UCS_OK) continue;
    std::vector<uct_md_resource_desc_t> memories(attributes.md_resource_count);
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attributes.md_resources = memories.data();
    if (memories.empty() || uct_component_query(components[c], &attributes) != UCS_OK) continue;
    for (const uct_md_resource_desc_t& memory : memories) {
      uct_md_config_t* config = nullptr;
      if (uct_md_config_read(components[c], "COLLECTIVES", nullptr, &config) != UCS_OK) continue;
      uct_md_h domain = nullptr;
      const ucs_status_t opened = uct_md_open(components[c], memory.md_name, config, &domain);
      uct_config_release(config);
      if (opened != UCS_OK) continue;
      uct_tl_resource_desc_t* resources = nullptr;
      unsigned resource_count = 0;
      if (uct_md_query_tl_resources(domain, &resources, &resource_count) == UCS_OK) {
        for (unsigned r = 0; r < resource_count; ++r) {
          found = found || (resources[r].dev_type == UCT_DEVICE_TYPE_NET && resources[r].tl_name != std::string("tcp"));
        }
        uct_release_tl_resource_list(resources);
      }
      uct_md_close(domain);
    }
  }
  uct_release_component_list(components);
  return found;
}

UcxTransport::UcxTransport(std::unique_ptr<UcxWorker> worker, const Everyone& everyone)
    : worker_(std::move(worker)),
      self_(everyone.self),
      token_(everyone.token),
      key_(key_of(everyone.token)),
      frame_bytes_(everyone.frame_bytes),
      eager_bytes_(on_fast_device() ? kEagerBytesOnFastDevice : kEagerBytes),
      peers_(everyone.addresses.size()) {
  const Quiet quiet;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    peer.wire = this;
    peer.rank = static_cast<Rank>(rank);
    for (Outgoing& out : peer.out) out.wire = this, out.peer = &peer;
    for (Outgoing* out : {&peer.hello, &peer.welcome, &peer.ready, &peer.news}) out->wire = this, out->peer = &peer;
    for (Incoming& in : peer.in) in.wire = this;
  }
  set_handlers();
  try {
    for (Peer& other : peers_) {
      if (everyone.is_remote(other.rank))
        make_endpoint(other, everyone.addresses[static_cast<std::size_t>(other.rank)]);
    }
    shake_hands(everyone.deadline);
  } catch (...) {
    close();
    throw;
  }
}

UcxTransport::~UcxTransport() { close(); }

void UcxTransport::set_handlers() {
  const auto set = [&](unsigned id, ucp_am_recv_callback_t callback, std::uint32_t flags = 0) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                       UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    param.id = id;
    param.cb = callback;
    param.arg = this;
    param.flags = UCP_AM_FLAG_WHOLE_MSG | flags;
    check(ucp_worker_set_am_recv_handler(worker_->get(), &param), "ucp_worker_set_am_recv_handler");
  };
  set(kHello, [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                 const ucp_am_recv_param_t* param) {
    return static_cast<UcxTransport*>(self)->on_hello(header, header_bytes, {static_cast<const char*>(data), bytes},
                                                      param);
  });
  set(kWelcome,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        return static_cast<UcxTransport*>(self)->on_answer(kWelcome, header, header_bytes);
      });
  set(kRefusal,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        return static_cast<UcxTransport*>(self)->on_answer(kRefusal, header, header_bytes);
      });
  set(kReady,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        return static_cast<UcxTransport*>(self)->on_answer(kReady, header, header_bytes);
      });
  set(
      kData,
      [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
         const ucp_am_recv_param_t* param) {
        return static_cast<UcxTransport*>(self)->on_data(header, header_bytes, data, bytes, param);
      },
      UCP_AM_FLAG_PERSISTENT_DATA);
  set(kNews,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        static_cast<UcxTransport*>(self)->on_news(header, header_bytes);
        return UCS_OK;
      });
  set(kControl, [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                   const ucp_am_recv_param_t* param) {
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;  // nobody of ours sends those
    static_cast<UcxTransport*>(self)->on_control(header, header_bytes, {static_cast<const char*>(data), bytes});
    return UCS_OK;
  });
}

// ---- meeting
// ---------------------------------------------------------------------------------------------------------

void UcxTransport::make_endpoint(Peer& other, const std::string& address) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &other;
  params.err_handler.cb = [](void* of, ucp_ep_h, ucs_status_t status) {
    Peer& lost = *static_cast<Peer*>(of);
    lost.wire->lose(lost, status);
  };
  const ucs_status_t status = ucp_ep_create(worker_->get(), &params, &other.endpoint);
  if (status != UCS_OK) {
    other.endpoint = nullptr;
    throw Error(Errc::bootstrap, fmt::format("transport ucx: rank {} cannot be reached: {}", other.rank, words(status)),
                self_, other.rank);
  }
}

void UcxTransport::shake_hands(Deadline deadline) {
  for (Peer& other : peers_) {
    if (other.endpoint == nullptr) continue;
    greet(other, kHello, other.hello, token_, UCP_AM_SEND_FLAG_REPLY);
  }
  const auto missing = [&](auto&& is_missing) {
    std::vector<Rank> ranks;
    for (const Peer& other : peers_) {
      if (other.endpoint != nullptr && is_missing(other)) ranks.push_back(other.rank);
    }
    return ranks;
  };
  while (true) {
    drive();
    for (Peer& other : peers_) bring_up(other);
    std::optional<Error> failure;
    const auto unmet = missing([](const Peer& other) { return !other.up || !other.up_there; });
    const auto lost = missing([](const Peer& other) { return other.lost.has_value(); });
    if (refused_by_) {
      failure.emplace(Errc::bootstrap,
                      fmt::format("transport ucx: rank {} refuses rank {}, whose token is not that of its job",
                                  *refused_by_, self_),
                      self_, *refused_by_);
    } else if (!lost.empty()) {
      failure.emplace(
          Errc::bootstrap,
          fmt::format("transport ucx: {} cannot be reached: {}", ranks_text(lost), *peer(lost.front()).lost), self_,
          lost.front());
    } else if (unmet.empty()) {
      return;
    } else if (deadline.passed()) {
      failure.emplace(Errc::timeout,
                      fmt::format("transport ucx: no answer from {} within the time for connecting", ranks_text(unmet)),
                      self_, unmet.empty() ? kNoRank : unmet.front());
    }
    if (failure) throw *failure;
    doze(std::chrono::milliseconds(deadline.milliseconds_left(10)));
  }
}

/// UCX connects what it has not needed yet in the background, which takes both sides: each tells the other when it has
/// no more need of it.
void UcxTransport::bring_up(Peer& other) {
  if (!other.heard || !other.answered || other.up || other.lost) return;
  if (!flushed(other)) return;
  other.up = true;
  greet(other, kReady, other.ready, {}, 0);
}

/// Sends a message of the handshake.
void UcxTransport::greet(Peer& to, unsigned id, Outgoing& out, std::string_view text, std::uint32_t flags) {
  out.header = {.key = key_, .from = static_cast<std::uint32_t>(self_)};
  const ucs_status_t status =
      post(to.endpoint, id, out.header, text.data(), text.size(), UCP_AM_SEND_FLAG_EAGER | flags, sent, &out, out.busy);
  if (out.busy) {
    ++in_progress_;
  } else if (status != UCS_OK) {
    lose(to, status);
  }
}

ucs_status_t UcxTransport::on_hello(const void* header, std::size_t header_bytes, std::string_view token,
                                    const ucp_am_recv_param_t* param) noexcept {
  Header theirs;
  if (header_bytes != sizeof theirs || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
  std::memcpy(&theirs, header, sizeof theirs);
  if (Peer* other = sender(header, header_bytes, theirs); other != nullptr && token == token_) {
    other->heard = true;
    if (!other->welcome.busy) greet(*other, kWelcome, other->welcome, {}, 0);
  } else if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) {
    // A stranger learns that, by the only way there is to him; his own key shows him that he is meant.
    try {
      Control& refusal = controls_out_.emplace_back();
      refusal.wire = this;
      refusal.header = {.key = theirs.key, .from = static_cast<std::uint32_t>(self_)};
      post(param->reply_ep, kRefusal, refusal.header, nullptr, 0, UCP_AM_SEND_FLAG_EAGER, control_done, &refusal,
           refusal.busy);
      if (refusal.busy) ++in_progress_;
    } catch (const std::bad_alloc&) {
    }
  }
  return UCS_OK;
}

ucs_status_t UcxTransport::on_answer(unsigned id, const void* header, std::size_t header_bytes) noexcept {
  Header theirs;
  if (Peer* other = sender(header, header_bytes, theirs)) {
    if (id == kWelcome) other->answered = true;
    if (id == kReady) other->up_there = true;
    if (id == kRefusal) refused_by_ = other->rank;
  }
  return UCS_OK;
}

UcxTransport::Peer* UcxTransport::sender(const void* header, std::size_t header_bytes, Header& theirs) noexcept {
  if (header_bytes != sizeof theirs) return nullptr;
  std::memcpy(&theirs, header, sizeof theirs);
  if (theirs.key != key_ || theirs.from >= peers_.size()) return nullptr;
  Peer& other = peers_[theirs.from];
  return other.endpoint != nullptr ? &other : nullptr;
}

// ---- moving on
// -------------------------------------------------------------------------------------------------------

void UcxTransport::drive() {
  if (!worker_) return;     // abandoned
  constexpr int kMost = 8;  // so that it comes back however much there is
  const Quiet quiet;
  for (int i = 0; i < kMost && ucp_worker_progress(worker_->get()) != 0; ++i) {
  }
}

void UcxTransport::progress() {
  if (in_progress_ > 0) drive();
}

void UcxTransport::doze(std::chrono::nanoseconds at_most) {
  if (at_most.count() <= 0) return;
  const Quiet quiet;
  if (!worker_ || worker_->event_fd() < 0) {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(at_most, std::chrono::microseconds(50)));
    return;
  }
  const ucs_status_t armed = ucp_worker_arm(worker_->get());
  if (armed == UCS_OK) {
    pollfd event{.fd = worker_->event_fd(), .events = POLLIN, .revents = 0};
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at_most);
    const timespec time{.tv_sec = static_cast<time_t>(seconds.count()),
                        .tv_nsec = static_cast<long>((at_most - seconds).count())};
    ::ppoll(&event, 1, &time, nullptr);
  }
  drive();
}

/// Sends an active message from memory that stays until it is not `busy` any more, which `done` must see to. `done` is
/// not called when the message is out at once.
ucs_status_t UcxTransport::post(ucp_ep_h to, unsigned id, const Header& header, const void* data, std::size_t bytes,
                                std::uint32_t flags, ucp_send_nbx_callback_t done, void* of, bool& busy) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  param.cb.send = done;
  param.user_data = of;
  const ucs_status_ptr_t request = ucp_am_send_nbx(to, id, &header, sizeof header, data, bytes, &param);
  busy = UCS_PTR_IS_PTR(request);
  return UCS_PTR_RAW_STATUS(request);
}

UcxTransport::Frame UcxTransport::take_frame() noexcept {
  if (!free_frames_.empty()) {
    Frame frame = std::move(free_frames_.back());
    free_frames_.pop_back();
    return frame;
  }
  const std::size_t rounded = std::max((frame_bytes_ + kAlignment - 1) / kAlignment, std::size_t{1}) * kAlignment;
  return Frame(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
}

void UcxTransport::give_frame(Frame frame) noexcept {
  try {
    if (frame) free_frames_.push_back(std::move(frame));
  } catch (const std::bad_alloc&) {  // then it is freed
  }
}

// ---- sending
// ---------------------------------------------------------------------------------------------------------

std::byte* UcxTransport::stage(Rank to) {
  Peer& receiver = peer(to);
  const auto free = [&] {
    return static_cast<std::uint16_t>(receiver.next_out - receiver.released_there) < kWindow &&
           !receiver.out[receiver.next_out % kWindow].busy && (receiver.staged || receiver.frames_out < kFrames);
  };
  if (!free()) {
    drive();
    if (!free()) return nullptr;
  }
  if (!receiver.staged) {
    receiver.staged = take_frame();
    if (!receiver.staged) throw std::bad_alloc();
    ++receiver.frames_out;
  }
  return receiver.staged.get();
}

void UcxTransport::send(Rank to, std::uint64_t tag, std::size_t bytes) {
  hand_over(peer(to), tag, peer(to).staged.get(), bytes, true);
}

void UcxTransport::send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
  hand_over(peer(to), tag, data, bytes, false);
}

void UcxTransport::hand_over(Peer& to, std::uint64_t tag, const std::byte* data, std::size_t bytes, bool from_frame) {
  Outgoing& out = to.out[to.next_out % kWindow];
  out.header = {.tag = tag,
                .key = key_,
                .from = static_cast<std::uint32_t>(self_),
                .number = to.next_out++,
                .released = to.next_in};
  to.released_told = to.next_in;
  to.flushed = false;
  if (from_frame) out.frame = std::move(to.staged);
  if (to.lost) return finish(out);
  const Quiet quiet;
  const ucs_status_t status =
      post(to.endpoint, kData, out.header, data, bytes,
           bytes <= eager_bytes_ ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV, sent, &out, out.busy);
  if (!out.busy) {
    finish(out);
    if (status != UCS_OK) lose(to, status);
    return;
  }
  ++in_progress_;
  if (!from_frame) {
    out.lent = {data, bytes};
    lend(data, bytes);
  }
}

/// Whatever the status: what ails a peer is told by its endpoint.
void UcxTransport::sent(void* request, ucs_status_t, void* of) {
  Outgoing& done = *static_cast<Outgoing*>(of);
  --done.wire->in_progress_;
  done.busy = false;
  done.wire->finish(done);
  ucp_request_free(request);
}

void UcxTransport::finish(Outgoing& out) noexcept {
  if (&out == &out.peer->news) return tell_releases(*out.peer);  // of what has been released meanwhile
  if (out.frame) {
    give_frame(std::move(out.frame));
    --out.peer->frames_out;
  }
  if (out.lent.first != nullptr) take_back(std::exchange(out.lent, {}).first);
}

void UcxTransport::lend(const std::byte* data, std::size_t bytes) { lent_.emplace_back(data, bytes); }

void UcxTransport::take_back(const std::byte* data) noexcept {
  const auto at = std::find_if(lent_.begin(), lent_.end(), [&](const auto& range) { return range.first == data; });
  *at = lent_.back();
  lent_.pop_back();
}

bool UcxTransport::lent(const std::byte* data, std::size_t bytes) const noexcept {
  return std::any_of(lent_.begin(), lent_.end(), [&](const auto& range) {
    return range.first < data + bytes && data < range.first + range.second;
  });
}

// ---- receiving
// -------------------------------------------------------------------------------------------------------

ucs_status_t UcxTransport::on_data(const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                   const ucp_am_recv_param_t* param) noexcept {
  Header theirs;
  Peer* from = sender(header, header_bytes, theirs);
  if (from == nullptr || !from->heard || bytes > frame_bytes_ || closing_) return UCS_OK;
  note_releases(*from, theirs);
  Incoming& in = from->in[theirs.number % kWindow];
  if (static_cast<std::uint16_t>(theirs.number - from->next_in) >= kWindow || in.state != Incoming::State::empty) {
    return UCS_OK;
  }
  in.message = {.tag = theirs.tag, .data = nullptr, .bytes = bytes};
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    in.kept = data;
    in.state = Incoming::State::announced;
    return UCS_INPROGRESS;
  }
  in.state = Incoming::State::arrived;
  if (bytes == 0) {
    alignas(kAlignment) static constexpr std::byte kNothing[kAlignment]{};
    in.message.data = kNothing;
    return UCS_OK;
  }
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 &&
      reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0) {
    in.kept = data;
    in.message.data = static_cast<const std::byte*>(data);
    return UCS_INPROGRESS;
  }
  in.frame = take_frame();
  if (!in.frame) {
    lose(*from, UCS_ERR_NO_MEMORY);
    in.state = Incoming::State::fetching;  // for ever
    return UCS_OK;
  }
  std::memcpy(in.frame.get(), data, bytes);
  in.message.data = in.frame.get();
  return UCS_OK;
}

const Message* UcxTransport::receive_into(Rank from, std::byte* place, std::size_t bytes) {
  Peer& sender = peer(from);
  Incoming& in = sender.in[sender.next_in % kWindow];
  if (in.state == Incoming::State::arrived) return &in.message;
  if (in.state != Incoming::State::announced) drive();
  if (in.state == Incoming::State::announced) {
    fetch(sender, in, place, bytes);
    drive();
  }
  return in.state == Incoming::State::arrived ? &in.message : nullptr;
}

void UcxTransport::fetch(Peer& from, Incoming& in, std::byte* place, std::size_t bytes) {
  if (place == nullptr || bytes != in.message.bytes) {
    in.frame = take_frame();
    if (!in.frame) throw std::bad_alloc();
    place = in.frame.get();
  }
  in.message.data = place;
  in.state = Incoming::State::fetching;
  const Quiet quiet;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* of) {
    Incoming& done = *static_cast<Incoming*>(of);
    --done.wire->in_progress_;
    done.wire->fetched(done, status);
    ucp_request_free(request);
  };
  param.user_data = &in;
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_->get(), std::exchange(in.kept, nullptr), place, in.message.bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) {
    fetched(in, UCS_PTR_RAW_STATUS(request));
    if (UCS_PTR_IS_ERR(request)) lose(from, UCS_PTR_STATUS(request));
    return;
  }
  ++in_progress_;
  if (!in.frame) {
    in.lent = true;
    lend(place, in.message.bytes);
  }
}

/// What could not be fetched never arrives: its sender is lost.
void UcxTransport::fetched(Incoming& in, ucs_status_t status) noexcept {
  if (std::exchange(in.lent, false)) take_back(in.message.data);
  if (status == UCS_OK) in.state = Incoming::State::arrived;
}

void UcxTransport::release(Rank from) {
  Peer& sender = peer(from);
  Incoming& in = sender.in[sender.next_in % kWindow];
  if (in.kept != nullptr) ucp_am_data_release(worker_->get(), std::exchange(in.kept, nullptr));
  give_frame(std::move(in.frame));
  in.state = Incoming::State::empty;
  ++sender.next_in;
  tell_releases(sender);
}

void UcxTransport::tell_releases(Peer& to) noexcept {
  if (static_cast<std::uint16_t>(to.next_in - to.released_told) < kTellEvery || to.news.busy || to.lost) return;
  to.news.header = {.key = key_, .from = static_cast<std::uint32_t>(self_), .released = to.next_in};
  to.released_told = to.next_in;
  const Quiet quiet;
  const ucs_status_t status =
      post(to.endpoint, kNews, to.news.header, nullptr, 0, UCP_AM_SEND_FLAG_EAGER, sent, &to.news, to.news.busy);
  if (to.news.busy) {
    ++in_progress_;
  } else if (status != UCS_OK) {
    lose(to, status);
  }
}

/// Headers may come out of order: older news than what is known is no news.
void UcxTransport::note_releases(Peer& of, const Header& theirs) noexcept {
  const auto ahead = static_cast<std::uint16_t>(theirs.released - of.released_there);
  if (ahead <= static_cast<std::uint16_t>(of.next_out - of.released_there)) of.released_there = theirs.released;
}

void UcxTransport::on_news(const void* header, std::size_t header_bytes) noexcept {
  Header theirs;
  if (Peer* from = sender(header, header_bytes, theirs)) note_releases(*from, theirs);
}

// ---- beside the data
// -------------------------------------------------------------------------------------------------

void UcxTransport::post_control(Rank to, std::string_view text) {
  if (!worker_) return;
  std::erase_if(controls_out_, [](const Control& control) { return !control.busy; });
  Peer& receiver = peer(to);
  if (receiver.lost || controls_out_.size() >= kMaxControlsInFlight) return;
  Control& control = controls_out_.emplace_back();
  control.wire = this;
  control.to = to;
  control.text = text;
  control.header = {
      .key = key_, .from = static_cast<std::uint32_t>(self_), .number = receiver.next_control_out++, .released = 0};
  receiver.flushed = false;
  const Quiet quiet;
  const ucs_status_t status = post(receiver.endpoint, kControl, control.header, control.text.data(),
                                   control.text.size(), UCP_AM_SEND_FLAG_EAGER, control_done, &control, control.busy);
  if (control.busy) {
    ++in_progress_;
  } else if (status != UCS_OK) {
    lose(receiver, status);
  }
}

void UcxTransport::control_done(void* request, ucs_status_t, void* of) {
  Control& done = *static_cast<Control*>(of);
  --done.wire->in_progress_;
  done.busy = false;
  ucp_request_free(request);
}

void UcxTransport::on_control(const void* header, std::size_t header_bytes, std::string_view text) noexcept {
  Header theirs;
  Peer* from = sender(header, header_bytes, theirs);
  if (from == nullptr || !from->heard) return;
  try {
    from->early_controls.insert_or_assign(theirs.number, std::string(text));
    while (true) {
      const auto next = from->early_controls.find(from->next_control_in);
      if (next == from->early_controls.end()) break;
      controls_in_.emplace_back(from->rank, std::move(next->second));
      from->early_controls.erase(next);
      ++from->next_control_in;
    }
  } catch (const std::bad_alloc&) {
    lose(*from, UCS_ERR_NO_MEMORY);
  }
}

std::optional<std::pair<Rank, std::string>> UcxTransport::poll_control() {
  if (controls_in_.empty()) drive();
  if (controls_in_.empty()) return std::nullopt;
  auto arrived = std::move(controls_in_.front());
  controls_in_.pop_front();
  return arrived;
}

void UcxTransport::lose(Peer& gone, ucs_status_t status) noexcept {
  if (gone.lost) return;
  try {
    gone.lost = words(status);
    lost_.push_back(gone.rank);
  } catch (const std::bad_alloc&) {  // then it is told as little as if it were only slow
  }
}

std::optional<std::pair<Rank, std::string>> UcxTransport::poll_lost() {
  if (lost_.empty()) drive();
  for (auto gone = lost_.begin(); gone != lost_.end(); ++gone) {
    const Rank rank = *gone;
    if (std::any_of(controls_in_.begin(), controls_in_.end(), [&](const auto& text) { return text.first == rank; })) {
      continue;
    }
    lost_.erase(gone);
    return std::make_pair(rank, *peer(rank).lost);
  }
  return std::nullopt;
}

// ---- ending
// ----------------------------------------------------------------------------------------------------------

/// Whether the peer's UCX has what was sent, which it may tell only when that peer calls it.
bool UcxTransport::flushed(Peer& to) {
  if (to.pending == nullptr && !to.flushed) {
    to.flushed = true;
    const ucp_request_param_t param{};
    const ucs_status_ptr_t request = ucp_ep_flush_nbx(to.endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) to.pending = request;
  }
  if (to.pending == nullptr) return true;
  if (ucp_request_check_status(to.pending) == UCS_INPROGRESS) return false;
  ucp_request_free(std::exchange(to.pending, nullptr));
  return to.flushed;
}

void UcxTransport::flush(Deadline deadline) {
  const Quiet quiet;
  while (true) {
    drive();
    std::vector<Rank> waiting;
    for (const Peer& other : peers_) {
      const bool busy = std::any_of(other.out.begin(), other.out.end(), [](const Outgoing& out) { return out.busy; }) ||
                        std::any_of(controls_out_.begin(), controls_out_.end(),
                                    [&](const Control& control) { return control.busy && control.to == other.rank; });
      if (busy && !other.lost) waiting.push_back(other.rank);
    }
    if (waiting.empty()) break;
    if (deadline.passed()) {
      throw Error(Errc::timeout, fmt::format("transport ucx: {} has not taken its messages", ranks_text(waiting)),
                  self_, waiting.front());
    }
    doze(std::chrono::milliseconds(1));
  }
  // The rest is short and with the network already, or with the kernel. A peer that is busy elsewhere does not confirm
  // that.
  const Deadline patience = Deadline::in(kPatience);
  while (!patience.passed() && !deadline.passed()) {
    bool all = true;
    for (Peer& other : peers_) all = (other.endpoint == nullptr || other.lost || flushed(other)) && all;
    if (all) return;
    doze(std::chrono::milliseconds(1));
  }
}

void UcxTransport::abandon() noexcept {
  for (const Deadline patience = Deadline::in(kPatience); !lent_.empty() && !patience.passed();)
    doze(std::chrono::milliseconds(1));
  if (!lent_.empty()) close();
}

void UcxTransport::close() noexcept {
  if (!worker_) return;
  const Quiet quiet;
  const auto wait_while = [&](auto&& busy) {
    const Deadline deadline = Deadline::in(kPatience);
    while (true) {
      drive();
      if (!busy() || deadline.passed()) return;
      doze(std::chrono::milliseconds(1));
    }
  };
  closing_ = true;
  for (Peer& other : peers_) {
    for (Incoming& in : other.in) {
      if (in.kept != nullptr) ucp_am_data_release(worker_->get(), std::exchange(in.kept, nullptr));
    }
  }
  wait_while([&] { return in_progress_ > 0; });

  std::vector<void*> closing;
  closing.reserve(2 * peers_.size());
  for (Peer& other : peers_) {
    if (other.endpoint == nullptr) continue;
    if (other.pending != nullptr) closing.push_back(std::exchange(other.pending, nullptr));
    const bool cut = other.lost || !other.up ||
                     std::any_of(other.out.begin(), other.out.end(), [](const Outgoing& out) { return out.busy; }) ||
                     std::any_of(other.in.begin(), other.in.end(),
                                 [](const Incoming& in) { return in.state == Incoming::State::fetching; });
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = cut ? static_cast<std::uint32_t>(UCP_EP_CLOSE_FLAG_FORCE) : 0;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(other.endpoint, &param);
    closing.push_back(UCS_PTR_IS_PTR(request) ? request : nullptr);
  }
  wait_while([&] {
    return std::any_of(closing.begin(), closing.end(), [](void* request) {
      return request != nullptr && ucp_request_check_status(request) == UCS_INPROGRESS;
    });
  });
  for (void* request : closing) {
    if (request != nullptr) ucp_request_free(request);
  }
  worker_.reset();  // before the memory that it may still use
}

}  // namespace collectives
