// Names of collectives, kinds of memory, element types and ops. The names appear in plans, errors and command lines.
#include "collectives/types.hpp"

namespace collectives {

std::string_view to_string(Collective collective) noexcept {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::broadcast: return "broadcast";
    case Collective::reduce: return "reduce";
    case Collective::barrier: return "barrier";
    case Collective::all_to_all: return "all_to_all";
    case Collective::gather: return "gather";
    case Collective::scatter: return "scatter";
    case Collective::scan: return "scan";
    case Collective::exclusive_scan: return "exclusive_scan";
  }
  return "unknown collective";
}

std::string_view to_string(Memory memory) noexcept { return memory == Memory::host ? "host" : "device"; }

std::string_view to_string(DataType type) noexcept {
  switch (type) {
    case DataType::f32: return "f32";
    case DataType::f64: return "f64";
    case DataType::f16: return "f16";
    case DataType::bf16: return "bf16";
    case DataType::i8: return "i8";
    case DataType::u8: return "u8";
    case DataType::i32: return "i32";
    case DataType::u32: return "u32";
    case DataType::i64: return "i64";
    case DataType::u64: return "u64";
  }
  return "unknown type";
}

std::string_view to_string(ReduceOp::Kind kind) noexcept {
  switch (kind) {
    case ReduceOp::Kind::sum: return "sum";
    case ReduceOp::Kind::average: return "average";
    case ReduceOp::Kind::product: return "product";
    case ReduceOp::Kind::min: return "min";
    case ReduceOp::Kind::max: return "max";
    case ReduceOp::Kind::pre_scaled_sum: return "pre_scaled_sum";
    case ReduceOp::Kind::user: return "user";
  }
  return "unknown op";
}

}  // namespace collectives
