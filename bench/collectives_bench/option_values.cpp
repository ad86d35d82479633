// Implementation of the parsers of option values of collectives_bench. The names of backends are checked by the library
// itself.
#include "collectives_bench/option_values.hpp"

#include <CLI/CLI.hpp>
#include <iterator>
#include <optional>
#include <system_error>

#include "base/bytes.hpp"
#include "collectives/error.hpp"
#include "collectives/plan.hpp"

namespace collectives::bench {

std::vector<DataType> verified_types() {
  std::vector<DataType> types;
  std::ranges::copy_if(kDataTypes, std::back_inserter(types), [](DataType type) {
    return class_of(type) != TypeClass::complex && class_of(type) != TypeClass::value_index;
  });
  return types;
}

std::vector<ReduceOp::Kind> verified_ops() {
  const std::vector<DataType> types = verified_types();
  std::vector<ReduceOp::Kind> ops;
  std::ranges::copy_if(kReduceKinds, std::back_inserter(ops), [&](ReduceOp::Kind op) {
    return std::ranges::any_of(types, [op](DataType type) { return supports(type, op); });
  });
  return ops;
}

std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    items.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

std::vector<std::string> choose_backends(std::string_view list) {
  std::vector<std::string> chosen;
  for (const std::string_view item : split_list(list)) {
    if (item == "all") {
      const auto names = backend_names();
      return {names.begin(), names.end()};
    }
    try {
      Request request;
      request.backend = item.empty() ? "''" : item;
      (void)choose_plan(request, Topology::regular(1, 1), {});
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) throw BadArguments(fmt::format("--backend: {}", error.what()));
    }
    chosen.emplace_back(item);
  }
  return chosen;
}

std::size_t size_argument(std::string_view flag, std::string_view text) {
  if (const auto bytes = parse_bytes(text)) return *bytes;
  throw BadArguments(fmt::format("{} '{}' is no size; valid: whole bytes, or with K, M, G: 0, 8, 64K, 1M", flag, text));
}

void check_range(std::string_view min_bytes, std::string_view max_bytes, const Settings& settings) {
  if (settings.min_bytes > settings.max_bytes)
    throw BadArguments(fmt::format("--min-bytes {} is above --max-bytes {}", min_bytes, max_bytes));
}

void choose_bootstrap(std::string_view text, Settings& settings) {
  constexpr std::string_view kThreads = "threads:";
  if (text == "auto") return;
  if (text == "mpi") {
    settings.bootstrap = BootstrapKind::mpi;
  } else if (text == "environment") {
    settings.bootstrap = BootstrapKind::environment;
  } else {
    settings.bootstrap = BootstrapKind::threads;
    if (text.starts_with(kThreads)) {
      const std::string_view number = text.substr(kThreads.size());
      const auto [end, error] = std::from_chars(number.begin(), number.end(), settings.threads);
      if (error == std::errc() && end == number.end() && settings.threads > 0 && settings.threads <= kMostRanks) return;
    }
    throw BadArguments(fmt::format(
        "--bootstrap '{}' is unknown; valid: auto, mpi, environment, threads:N with N from 1 to {}", text, kMostRanks));
  }
}

std::string complaint(const CLI::App& app, const CLI::ParseError& error) {
  std::string line = error.what();
  std::ranges::replace(line, '\n', ' ');
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return line;
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_lnames().empty()) flags.push_back("--" + option->get_lnames().front());
  }
  return fmt::format("{}; valid: {}", line, fmt::join(flags, ", "));
}

}  // namespace collectives::bench
