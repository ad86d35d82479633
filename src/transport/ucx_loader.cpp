// Implementation of the loader of libcollectives_ucx. This shared library is the only part of the project that is
// linked to UCX. The loader loads this shared library at run time, so that the core library also runs on machines
// without UCX.
#include "transport/ucx_loader.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "transport/ucx_component.hpp"

namespace collectives {
namespace {

struct Ucx {
  explicit Ucx(const std::string& directory) : component(COLLECTIVES_UCX_FILE, "collectives_ucx_version", directory) {}
  Component component;
  decltype(&collectives_ucx_network) network = nullptr;
  decltype(&collectives_ucx_has_fast_device) has_fast_device = nullptr;

  /// Finds the functions of libcollectives_ucx. If one is missing, sets `why_not` and returns false.
  bool find(std::string& why_not) {
    if (component.find(network, "collectives_ucx_network") &&
        component.find(has_fast_device, "collectives_ucx_has_fast_device"))
      return true;
    why_not = fmt::format("UCX cannot be used: {}", component.why_not());
    return false;
  }
};

}  // namespace

std::unique_ptr<Network> load_ucx_network(std::string& why_not, const std::string& directory) {
  Ucx ucx(directory);
  if (!ucx.find(why_not)) return nullptr;
  char text[512] = "";
  std::unique_ptr<Network> network(ucx.network(text, sizeof text));
  if (!network) why_not = text;
  return network;
}

bool ucx_has_fast_device(std::string& why_not, const std::string& directory) {
  Ucx ucx(directory);
  if (!ucx.find(why_not)) return false;
  const bool found = ucx.has_fast_device() != 0;
  if (!found) why_not = "UCX finds no network device here that it drives past the kernel";
  return found;
}

}  // namespace collectives
