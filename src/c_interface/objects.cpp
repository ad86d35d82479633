// Functions of the C interface for objects that a program passes to calls. These objects are shared memory, GPU memory,
// user ops, codecs and top-k compressors.
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "c_interface/handles.hpp"

using namespace collectives;
using namespace collectives::c;

// ---- memory ----

collectives_error collectives_memory_allocate(const collectives_communicator* comm, size_t bytes, size_t alignment,
                                              collectives_memory** memory) {
  return made(__func__, memory, "memory", [&] {
    return std::make_unique<collectives_memory>(
        collectives_memory{require(comm, "comm").comm.allocate_bytes(bytes, alignment == 0 ? 64 : alignment)});
  });
}

void* collectives_memory_data(const collectives_memory* memory) {
  return property(__func__, memory, "memory", static_cast<void*>(nullptr),
                  [](const auto& known) { return known.memory.data(); });
}

size_t collectives_memory_bytes(const collectives_memory* memory) {
  return property(__func__, memory, "memory", size_t{0}, [](const auto& known) { return known.memory.size(); });
}

collectives_error collectives_memory_pages(const collectives_memory* memory, collectives_pages* pages) {
  return guarded(__func__, [&] {
    require(pages, "pages") = COLLECTIVES_PRIVATE_PAGES;
    *pages = static_cast<collectives_pages>(require(memory, "memory").memory.pages());
  });
}

collectives_error collectives_memory_describe(const collectives_memory* memory, char** text) {
  return text_out(__func__, text, "text", [&] { return require(memory, "memory").memory.describe(); });
}

void collectives_memory_free(collectives_memory* memory) { delete memory; }

// ---- memory of a GPU ----

static_assert(static_cast<int>(DeviceAccess::registered) == COLLECTIVES_DEVICE_REGISTERED &&
              static_cast<int>(DeviceAccess::mapped) == COLLECTIVES_DEVICE_MAPPED &&
              static_cast<int>(DeviceAccess::copied) == COLLECTIVES_DEVICE_COPIED);

collectives_error collectives_device_memory_allocate(collectives_communicator* comm, size_t bytes,
                                                     collectives_device_memory** memory) {
  return made(__func__, memory, "memory", [&] {
    return std::make_unique<collectives_device_memory>(
        collectives_device_memory{require(comm, "comm").comm.allocate_bytes_on_device(bytes)});
  });
}

collectives_error collectives_device_memory_register(collectives_communicator* comm, void* data, size_t bytes,
                                                     collectives_device_memory** memory) {
  return made(__func__, memory, "memory", [&] {
    return std::make_unique<collectives_device_memory>(
        collectives_device_memory{require(comm, "comm").comm.register_memory(data, bytes)});
  });
}

void* collectives_device_memory_data(const collectives_device_memory* memory) {
  return property(__func__, memory, "memory", static_cast<void*>(nullptr),
                  [](const auto& known) { return known.memory.data(); });
}

size_t collectives_device_memory_bytes(const collectives_device_memory* memory) {
  return property(__func__, memory, "memory", size_t{0}, [](const auto& known) { return known.memory.size(); });
}

collectives_error collectives_device_memory_access(const collectives_device_memory* memory,
                                                   collectives_device_access* access) {
  return guarded(__func__, [&] {
    require(access, "access") = COLLECTIVES_DEVICE_COPIED;
    *access = static_cast<collectives_device_access>(require(memory, "memory").memory.access());
  });
}

collectives_error collectives_device_memory_describe(const collectives_device_memory* memory, char** text) {
  return text_out(__func__, text, "text", [&] { return require(memory, "memory").memory.describe(); });
}

void collectives_device_memory_free(collectives_device_memory* memory) { delete memory; }

// ---- user ops ----

collectives_error collectives_user_op_create(const char* name, collectives_combine combine, void* context,
                                             int commutative, collectives_user_op** op) {
  return made(__func__, op, "op", [&] {
    require(combine, "combine");
    return std::make_unique<collectives_user_op>(
        collectives_user_op{{&require(name, "name"),
                             [=](const void* next, void* accumulated, std::size_t count, DataType type) {
                               combine(context, next, accumulated, count, static_cast<collectives_data_type>(type));
                             },
                             commutative != 0}});
  });
}

collectives_error collectives_user_op_set_element_bytes(collectives_user_op* op, size_t element_bytes) {
  return guarded(__func__, [&] { require(op, "op").op.element_bytes = element_bytes; });
}

void collectives_user_op_free(collectives_user_op* op) { delete op; }

// ---- codecs ----

namespace {

class CodecOfFunctions final : public Codec {
 public:
  explicit CodecOfFunctions(const collectives_codec_functions& functions)
      : functions_(functions), name_(functions.name) {}
  std::string_view name() const noexcept override { return name_; }
  std::size_t block() const noexcept override { return functions_.block == 0 ? 1 : functions_.block; }
  std::size_t encoded_bytes(std::size_t count) const noexcept override {
    return functions_.encoded_bytes(functions_.context, count);
  }
  void encode(std::span<const float> values, std::byte* wire) const noexcept override {
    functions_.encode(functions_.context, values.data(), values.size(), wire);
  }
  void decode(const std::byte* wire, std::span<float> values) const noexcept override {
    functions_.decode(functions_.context, wire, values.data(), values.size());
  }

 private:
  const collectives_codec_functions functions_;
  const std::string name_;
};

}  // namespace

collectives_error collectives_codec_create(const collectives_codec_functions* functions, collectives_codec** codec) {
  return made(__func__, codec, "codec", [&] {
    return std::make_unique<collectives_codec>(
        collectives_codec{std::make_unique<CodecOfFunctions>(functions_of(functions))});
  });
}

void collectives_codec_free(collectives_codec* codec) { delete codec; }

// ---- top-k ----

collectives_error collectives_top_k_create(const collectives_top_k_options* options, collectives_top_k** top_k) {
  return made(__func__, top_k, "top_k", [&] {
    return std::make_unique<collectives_top_k>(collectives_top_k{TopK(options_of(options)), {}});
  });
}

collectives_error collectives_top_k_get_report(collectives_top_k* top_k, const char* name,
                                               collectives_top_k_report* report) {
  return guarded(__func__, [&] {
    collectives_top_k& known = require(top_k, "top_k");
    const TopKReport made = known.top_k.report(&require(name, "name"));
    known.reason = made.reason;
    fill(report, made, known.reason.c_str());
  });
}

collectives_error collectives_top_k_save(const collectives_top_k* top_k, void** state, size_t* bytes) {
  return guarded(__func__, [&] {
    require(state, "state") = nullptr;
    require(bytes, "bytes") = 0;
    const std::vector<std::byte> saved = require(top_k, "top_k").top_k.save();
    *state = copy_out(saved.data(), saved.size());
    *bytes = saved.size();
  });
}

collectives_error collectives_top_k_load(collectives_top_k* top_k, const void* const* states, const size_t* bytes,
                                         size_t saved, int rank, int ranks) {
  return guarded(__func__, [&] {
    TopK& known = require(top_k, "top_k").top_k;
    require(states, "states");
    require(bytes, "bytes");
    std::vector<std::vector<std::byte>> list;
    for (std::size_t r = 0; r < saved; ++r) {
      const auto* const first = static_cast<const std::byte*>(states[r]);
      if (bytes[r] > 0) require(first, "a state");
      list.emplace_back(first, first + bytes[r]);
    }
    known.load(list, rank, ranks);
  });
}

void collectives_top_k_free(collectives_top_k* top_k) { delete top_k; }
