// Implementation of UcxWorker, which owns the two objects that a process needs to use UCX: a context and a worker.
//
// UCX reads its settings from environment variables. This file changes some of them before it makes the context
// (ucx_worker.hpp lists them). It also converts errors of UCX to Error, and searches for fast network devices, which
// UCX drives without the kernel.
#include "ucx/ucx_worker.hpp"

#include <fmt/format.h>
#include <ucs/debug/log_def.h>
#include <uct/api/uct.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/error.hpp"

namespace collectives {
namespace {

// Number of Quiet objects that exist in this thread. If the number is above 0, UCX logs nothing in this thread. The log
// level of UCX would apply to the whole process, whose program may use UCX, too. This library therefore does not change
// the log level.
thread_local int quiet_calls = 0;

ucs_log_func_rc_t log_unless_quiet(const char*, unsigned, const char*, ucs_log_level_t,
                                   const ucs_log_component_config_t*, const char*, va_list) {
  return quiet_calls > 0 ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

/// Returns the settings of UCX as lines of text, such as "UCX_TLS=all".
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

/// Maximum payload that is sent eagerly, which means together with the header, as a setting of UCX. A longer payload is
/// only announced, and the receiver fetches it. Fetching saves two copies, but costs a round trip. Over TCP, the
/// request for the payload waits behind data of the receiver on the same connection. Ranks that exchange long messages
/// then take turns: at 1 Gbit/s, an all-reduce of 2 MiB on two hosts took 35 ms. It takes 18.5 ms if all payloads are
/// sent eagerly. The second constant is for network devices that UCX drives without the kernel (InfiniBand, RoCE). The
/// variable COLLECTIVES_UCX_RNDV_THRESH takes precedence over both.
constexpr const char *kEager = "inf", *kEagerOnFastDevice = "8k";

ucp_config_t* read_config() {
  ucp_config_t* config = nullptr;
  ucx::check(ucp_config_read("COLLECTIVES", nullptr, &config), "ucp_config_read");
  const std::string settings = printed(config);
  const auto is = [&](std::string_view setting) { return settings.find(setting) != std::string::npos; };
  // Changes settings. A version of UCX that lacks a setting ignores the change.
  if (is("_TLS=all\n")) ucp_config_modify(config, "TLS", "^sm");
  if (is("_RNDV_THRESH=auto\n"))
    ucp_config_modify(config, "RNDV_THRESH", UcxWorker::on_fast_device() ? kEagerOnFastDevice : kEager);
  // UCX 1.13 names the settings of TCP without the prefix "TCP_". Both names are set; the unknown one has no effect.
  constexpr std::pair<const char*, const char*> kTcp[] = {
      {"CONN_NB", "y"}, {"KEEPIDLE", "2s"}, {"KEEPINTVL", "1s"}, {"KEEPCNT", "3"}};
  for (const auto& [name, value] : kTcp) {
    ucp_config_modify(config, name, value);
    ucp_config_modify(config, fmt::format("TCP_{}", name).c_str(), value);
  }
  if (is("_KEEPALIVE_INTERVAL=20000000.00us\n")) {
    ucp_config_modify(config, "KEEPALIVE_INTERVAL", UcxWorker::on_fast_device() ? "2s" : "inf");
  }
  return config;
}

}  // namespace

namespace ucx {

Quiet::Quiet() {
  static std::once_flag once;
  std::call_once(once, [] {
    char level[16] = "";  // A level other than "warn", the default, is the user's choice.
    if (ucs_global_opts_get_value("LOG_LEVEL", level, sizeof level) != UCS_OK) return;
    for (char& letter : level) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (std::string_view(level) == "warn") ucs_log_push_handler(log_unless_quiet);
  });
  ++quiet_calls;
}

Quiet::~Quiet() { --quiet_calls; }

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

}  // namespace ucx

UcxWorker::UcxWorker() {
  const ucx::Quiet quiet;
  ucp_config_t* config = read_config();
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "collectives";
  ucs_status_t status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  ucx::check(status, "ucp_init");

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  worker_params.am_alignment = kAlignment;
  status = ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) ucp_cleanup(context_);
  ucx::check(status, "ucp_worker_create");
  if (ucp_worker_get_efd(worker_, &event_fd_) != UCS_OK) event_fd_ = -1;
}

UcxWorker::~UcxWorker() {
  const ucx::Quiet quiet;
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

std::string UcxWorker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  ucx::check(ucp_worker_get_address(worker_, &address, &bytes), "ucp_worker_get_address");
  std::string text(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return text;
}

bool UcxWorker::has_fast_device() {
  const ucx::Quiet quiet;
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

bool UcxWorker::on_fast_device() {
  static const bool fast = has_fast_device();
  return fast;
}

}  // namespace collectives
