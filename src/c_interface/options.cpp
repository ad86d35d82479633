// Conversion of values and structs between the C interface and the C++ interface. Options are converted from C to C++,
// and reports from C++ to C.
//
// A program may be compiled with older or newer headers than the library. The field `size` of a struct holds the size
// that the struct has in the program. If the struct of the program lacks fields, the library treats them as 0. If the
// library does not know the last fields of a struct that it reads, they must be 0.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "c_interface/handles.hpp"
#include "collectives/version.hpp"

namespace collectives::c {
namespace {

// Enumerators of the C interface have the same values as those of the C++ interface.
template <class A, class B>
constexpr bool same(A a, B b) {
  return static_cast<int>(a) == static_cast<int>(b);
}
static_assert(same(COLLECTIVES_ALL_REDUCE, Collective::all_reduce) &&
              same(COLLECTIVES_REDUCE_SCATTER, Collective::reduce_scatter) &&
              same(COLLECTIVES_ALL_GATHER, Collective::all_gather) &&
              same(COLLECTIVES_BROADCAST, Collective::broadcast) && same(COLLECTIVES_REDUCE, Collective::reduce) &&
              same(COLLECTIVES_BARRIER, Collective::barrier) && same(COLLECTIVES_ALL_TO_ALL, Collective::all_to_all) &&
              same(COLLECTIVES_GATHER, Collective::gather) && same(COLLECTIVES_SCATTER, Collective::scatter) &&
              same(COLLECTIVES_SCAN, Collective::scan) &&
              same(COLLECTIVES_EXCLUSIVE_SCAN, Collective::exclusive_scan) && std::size(kCollectives) == 11);
static_assert(same(COLLECTIVES_F32, DataType::f32) && same(COLLECTIVES_F64, DataType::f64) &&
              same(COLLECTIVES_F16, DataType::f16) && same(COLLECTIVES_BF16, DataType::bf16) &&
              same(COLLECTIVES_I8, DataType::i8) && same(COLLECTIVES_U8, DataType::u8) &&
              same(COLLECTIVES_I32, DataType::i32) && same(COLLECTIVES_U32, DataType::u32) &&
              same(COLLECTIVES_I64, DataType::i64) && same(COLLECTIVES_U64, DataType::u64) &&
              same(COLLECTIVES_BOOLEAN, DataType::boolean) && same(COLLECTIVES_I16, DataType::i16) &&
              same(COLLECTIVES_U16, DataType::u16) && same(COLLECTIVES_F8E4M3, DataType::f8e4m3) &&
              same(COLLECTIVES_F8E5M2, DataType::f8e5m2) && same(COLLECTIVES_COMPLEX64, DataType::complex64) &&
              same(COLLECTIVES_COMPLEX128, DataType::complex128) && same(COLLECTIVES_F32_INDEX, DataType::f32_index) &&
              same(COLLECTIVES_F64_INDEX, DataType::f64_index) && same(COLLECTIVES_I64_INDEX, DataType::i64_index) &&
              same(COLLECTIVES_I32_INDEX, DataType::i32_index) && same(COLLECTIVES_I16_INDEX, DataType::i16_index) &&
              std::size(kDataTypes) == COLLECTIVES_I16_INDEX + 1);
static_assert(same(COLLECTIVES_SUM, ReduceOp::Kind::sum) && same(COLLECTIVES_AVERAGE, ReduceOp::Kind::average) &&
              same(COLLECTIVES_PRODUCT, ReduceOp::Kind::product) && same(COLLECTIVES_MIN, ReduceOp::Kind::min) &&
              same(COLLECTIVES_MAX, ReduceOp::Kind::max) &&
              same(COLLECTIVES_PRE_SCALED_SUM, ReduceOp::Kind::pre_scaled_sum) &&
              same(COLLECTIVES_USER_OP, ReduceOp::Kind::user) &&
              same(COLLECTIVES_BITWISE_AND, ReduceOp::Kind::bitwise_and) &&
              same(COLLECTIVES_BITWISE_OR, ReduceOp::Kind::bitwise_or) &&
              same(COLLECTIVES_BITWISE_XOR, ReduceOp::Kind::bitwise_xor) &&
              same(COLLECTIVES_LOGICAL_AND, ReduceOp::Kind::logical_and) &&
              same(COLLECTIVES_LOGICAL_OR, ReduceOp::Kind::logical_or) &&
              same(COLLECTIVES_LOGICAL_XOR, ReduceOp::Kind::logical_xor) &&
              same(COLLECTIVES_MIN_LOC, ReduceOp::Kind::min_loc) &&
              same(COLLECTIVES_MAX_LOC, ReduceOp::Kind::max_loc) && std::size(kReduceKinds) == COLLECTIVES_MAX_LOC + 1);
static_assert(same(COLLECTIVES_HUGE_PAGES, Pages::huge_pages) &&
              same(COLLECTIVES_TRANSPARENT_HUGE_PAGES, Pages::transparent_huge_pages) &&
              same(COLLECTIVES_SMALL_PAGES, Pages::small_pages) &&
              same(COLLECTIVES_PRIVATE_PAGES, Pages::private_pages));
static_assert(same(COLLECTIVES_NON_FINITE_PROPAGATE, NonFinite::propagate) &&
              same(COLLECTIVES_NON_FINITE_SKIP, NonFinite::skip) &&
              same(COLLECTIVES_NON_FINITE_ABORT, NonFinite::abort));
static_assert(same(COLLECTIVES_SPARSE_AUTOMATIC, SparseForm::automatic) &&
              same(COLLECTIVES_SPARSE_GATHERED, SparseForm::gathered) &&
              same(COLLECTIVES_SPARSE_SPLIT, SparseForm::split));

template <class... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Refused{Errc::invalid_argument, fmt::format(format, std::forward<Arguments>(arguments)...)};
}

template <class To, class From>
To enumerator(From value, From last, std::string_view what) {
  if (static_cast<int>(value) < 0 || value > last) refuse("no such {}: {}", what, static_cast<int>(value));
  return static_cast<To>(value);
}

/// Returns the size of the program's struct. Throws an error if the size is 0, no multiple of a word, or above 4096
/// bytes. With such a size, the program has not set the field, because structs of the library never exceed 4096 bytes.
std::size_t checked(std::size_t size, std::size_t expected, std::string_view name) {
  if (size == 0 || size % sizeof(std::size_t) != 0 || size > 4096)
    refuse("{}::size is {}: it must be sizeof({}), here {}", name, size, name, expected);
  return size;
}

/// Throws the error for a struct in which a field is set that this library does not know.
[[noreturn]] void refuse_unknown(std::string_view name) {
  throw Refused{Errc::unsupported,
                fmt::format("{} uses a field that this library, version {}, does not know", name, version())};
}

/// Returns a copy of the program's struct. Fields that the program's struct lacks are 0 in the copy.
template <class T>
T copy_of(const T* from, std::string_view name) {
  T value{};
  if (from == nullptr) return value;
  const std::size_t size = checked(from->size, sizeof value, name);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(from);
  if (size > sizeof value && std::any_of(bytes + sizeof value, bytes + size, [](auto byte) { return byte != 0; }))
    refuse_unknown(name);
  std::memcpy(&value, from, std::min(size, sizeof value));
  return value;
}

/// Writes the fields of `value` that the program's struct has. Sets fields that the library does not know to 0.
template <class T>
void filled(T& to, T value, std::string_view name) {
  value.size = checked(to.size, sizeof value, name);
  auto* const bytes = reinterpret_cast<unsigned char*>(&to);
  std::memcpy(bytes, &value, std::min(value.size, sizeof value));
  if (value.size > sizeof value) std::memset(bytes + sizeof value, 0, value.size - sizeof value);
}

std::optional<bool> switched(collectives_switch value, std::string_view what) {
  switch (value) {
    case COLLECTIVES_DEFAULT: return std::nullopt;
    case COLLECTIVES_ON: return true;
    case COLLECTIVES_OFF: return false;
  }
  refuse("{} is {}: a switch is COLLECTIVES_DEFAULT, COLLECTIVES_ON or COLLECTIVES_OFF", what, static_cast<int>(value));
}

std::string_view view_of(const char* text) { return text == nullptr ? std::string_view() : text; }

std::optional<DataType> type_named(std::string_view name) {
  const auto* const found = std::ranges::find(kDataTypes, name, [](DataType type) { return to_string(type); });
  return found == std::end(kDataTypes) ? std::nullopt : std::optional(*found);
}

WireFormat wire_of(const char* name, const collectives_codec* codec) {
  if (name != nullptr && codec != nullptr) refuse("collectives_options has both a wire and a codec");
  if (codec != nullptr) return *codec->codec;
  if (name == nullptr) return {};
  if (const auto type = type_named(name)) return *type;
  if (const Codec* const found = find_codec(name)) return *found;
  std::string known;
  for (const Codec* const one : codecs()) known += fmt::format(", {}", one->name());
  refuse("unknown wire \"{}\"; known: f32{}", name, known);
}

}  // namespace

CommunicatorOptions options_of(const collectives_communicator_options* options) {
  constexpr std::string_view kName = "collectives_communicator_options";
  const auto c_options = copy_of(options, kName);
  if (c_options.reserved != COLLECTIVES_DEFAULT) refuse_unknown(kName);
  CommunicatorOptions result;
  result.backend = view_of(c_options.backend);
  result.timeout = duration_of(c_options.timeout_seconds, "timeout_seconds");
  result.stall_report = duration_of(c_options.stall_report_seconds, "stall_report_seconds", result.stall_report);
  result.transport = view_of(c_options.transport);
  result.wire = view_of(c_options.wire);
  result.deterministic = switched(c_options.deterministic, "deterministic");
  result.progress_thread = switched(c_options.progress_thread, "progress_thread");
  result.device_buffers = switched(c_options.device_buffers, "device_buffers");
  result.inject = view_of(c_options.inject);
  return result;
}

DataType type_of(collectives_data_type type) { return enumerator<DataType>(type, COLLECTIVES_I16_INDEX, "type"); }
Collective collective_of(collectives_collective collective) {
  return enumerator<Collective>(collective, COLLECTIVES_EXCLUSIVE_SCAN, "collective");
}
std::chrono::nanoseconds duration_of(double seconds, std::string_view what, std::chrono::nanoseconds zero) {
  constexpr double kLongest = 9e9;  // in seconds; std::chrono::nanoseconds holds at most 9.2e9 s
  if (!(seconds >= 0)) refuse("{} is {}: it must be at least 0", what, seconds);
  if (seconds == 0) return zero;
  if (seconds > kLongest) return std::chrono::nanoseconds::max();
  return std::chrono::ceil<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

CallOptions::CallOptions(const collectives_options* options, bool lists_parts) {
  if (options == nullptr) return;
  const auto c_options = copy_of(options, "collectives_options");
  backend = view_of(c_options.backend);
  name = view_of(c_options.name);
  timeout = duration_of(c_options.timeout_seconds, "timeout_seconds");
  deterministic = switched(c_options.deterministic, "deterministic");
  wire = wire_of(c_options.wire, c_options.codec);
  compressor = c_options.compressor == nullptr ? nullptr : &c_options.compressor->top_k;
  force = switched(c_options.force, "force").value_or(false);
  if (c_options.stream != nullptr) stream = *c_options.stream;
  factor_ = c_options.factor;
  user_op_ = c_options.user_op;
  displacements_ = c_options.displacements;
  if (displacements_ != nullptr && !lists_parts)
    refuse("collectives_options has displacements, which this call does not use");
}

ReduceOp CallOptions::op(collectives_op op) const {
  if (user_op_ != nullptr && op != COLLECTIVES_USER_OP)
    refuse("collectives_options has a user_op, which op does not use");
  if (op == COLLECTIVES_PRE_SCALED_SUM) {
    if (!factor_) refuse("pre_scaled_sum needs a factor, in collectives_options");
    return ReduceOp::pre_scaled_sum(*factor_);
  }
  if (op == COLLECTIVES_USER_OP) return ReduceOp::user(require(user_op_, "collectives_options::user_op").op);
  const auto index = static_cast<unsigned>(op);
  if (index < std::size(kReduceKinds)) return ReduceOp::of(kReduceKinds[index]);
  refuse("no such op: {}", static_cast<int>(op));
}

TopKOptions options_of(const collectives_top_k_options* options) {
  const auto c_options = copy_of(options, "collectives_top_k_options");
  TopKOptions result;
  if (c_options.density != 0) result.density = c_options.density;
  result.k = c_options.k;
  result.momentum = static_cast<float>(c_options.momentum);
  result.clip = static_cast<float>(c_options.clip);
  result.warm_up_calls = c_options.warm_up_calls;
  if (c_options.warm_up_density != 0) result.warm_up_density = c_options.warm_up_density;
  if (c_options.values != nullptr) {
    const auto type = type_named(c_options.values);
    if (!type) refuse("top-k: values travel as f32 or bf16, not as \"{}\"", c_options.values);
    result.values = *type;
  }
  result.error_feedback = switched(c_options.error_feedback, "error_feedback").value_or(result.error_feedback);
  result.masking = switched(c_options.masking, "masking").value_or(result.masking);
  result.non_finite = enumerator<NonFinite>(c_options.non_finite, COLLECTIVES_NON_FINITE_ABORT, "non_finite");
  result.form = enumerator<SparseForm>(c_options.form, COLLECTIVES_SPARSE_SPLIT, "form");
  return result;
}

collectives_codec_functions functions_of(const collectives_codec_functions* functions) {
  const auto result = copy_of(&require(functions, "functions"), "collectives_codec_functions");
  require(result.name, "collectives_codec_functions::name");
  require(result.encoded_bytes, "collectives_codec_functions::encoded_bytes");
  require(result.encode, "collectives_codec_functions::encode");
  require(result.decode, "collectives_codec_functions::decode");
  return result;
}

void fill(collectives_coding_report* to, const CodingReport& report) {
  filled(require(to, "report"), {0, report.raw_bytes, report.sent_bytes, report.seconds}, "collectives_coding_report");
}

void fill(collectives_top_k_report* to, const TopKReport& report, const char* reason) {
  filled(require(to, "report"),
         {.size = 0,
          .calls = report.calls,
          .sparse = report.sparse ? std::size_t{1} : 0,
          .reason = reason,
          .count = report.count,
          .chosen = report.chosen,
          .union_size = report.union_size,
          .raw_bytes = report.raw_bytes,
          .sent_bytes = report.sent_bytes,
          .coding_seconds = report.coding_seconds,
          .residual_norm = report.residual_norm,
          .relative_error = report.relative_error},
         "collectives_top_k_report");
}

}  // namespace collectives::c

size_t collectives_size_of(collectives_data_type type) {
  const auto index = static_cast<unsigned>(type);
  return index < std::size(collectives::kDataTypes) ? collectives::size_of(collectives::kDataTypes[index]) : 0;
}
