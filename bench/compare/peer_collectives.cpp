// This library, as a program uses it that mpirun started and that knows nothing of MPI.
#include <collectives/collectives.hpp>

#include "harness.hpp"

namespace collectives::compare {
namespace {

class Ours final : public Contender {
 public:
  void all_reduce(const float* in, float* out, std::size_t count) override {
    comm_.all_reduce(input(in, count), output(out, count));
  }

  const float* reduce_scatter(const float* in, float* out, std::size_t part) override {
    float* const result = in == out ? out + rank() * part : out;
    comm_.reduce_scatter(input(in, ranks() * part), output(result, part));
    return result;
  }

  void all_gather(const float* in, float* out, std::size_t part) override {
    comm_.all_gather(input(in, part), output(out, ranks() * part));
  }

  void broadcast(float* data, std::size_t count) override { comm_.broadcast(output(data, count), 0); }

  void progress() override { comm_.progress(); }

 private:
  static ConstBuffer input(const float* data, std::size_t count) { return {data, count, DataType::f32}; }
  static Buffer output(float* data, std::size_t count) { return {data, count, DataType::f32}; }
  std::size_t rank() const { return static_cast<std::size_t>(comm_.rank()); }
  std::size_t ranks() const { return static_cast<std::size_t>(comm_.size()); }

  Communicator comm_ = Communicator::from_environment();
};

std::unique_ptr<Contender> make(Meeting&, const std::string& variant) {
  if (variant != "ordinary") throw BadArguments("--variant " + variant + ": known is ordinary");
  return std::make_unique<Ours>();
}

}  // namespace
}  // namespace collectives::compare

int main(int argc, char** argv) { return collectives::compare::run_contender(argc, argv, collectives::compare::make); }
