// Trains a model with libtorch on several ranks. Each rank has other training data. In every step, the library averages
// the gradients of all ranks in place, so that all ranks update their weights equally.
//
//   collectives_run -n 2 15_libtorch        needs libtorch (Debian: libtorch-dev)
#include <torch/torch.h>

#include <collectives/collectives.hpp>
#include <cstdint>
#include <cstdio>

/// Returns a buffer that refers to the values of a tensor, without a copy.
collectives::Buffer view(const torch::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.device().is_cpu() && tensor.scalar_type() == torch::kFloat32);
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), collectives::DataType::f32};
}

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();
  torch::set_num_threads(1);  // one thread per rank, because the ranks share the cores

  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  for (auto& parameter : model->parameters()) comm.broadcast(view(parameter.data()), 0);

  torch::manual_seed(static_cast<std::uint64_t>(comm.rank()) + 100);  // different data on every rank
  const torch::Tensor inputs = torch::randn({256, 8}), targets = inputs.sum(1, true).sin();

  torch::optim::SGD optimizer(model->parameters(), 0.1);
  float first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    torch::Tensor loss = torch::mse_loss(model->forward(inputs), targets);
    loss.backward();

    collectives::Group group = comm.group();  // fuses small tensors into one call
    for (const auto& parameter : model->parameters())
      group.all_reduce(view(parameter.grad()), view(parameter.grad()), collectives::ReduceOp::average);
    group.run();
    optimizer.step();

    last = loss.item<float>();
    if (step == 0) first = last;
  }

  // All ranks began with equal weights and have made equal updates, so their weights must be equal, bit for bit.
  const torch::Tensor weights = model->parameters()[0].detach();
  const torch::Tensor of_rank_0 = weights.clone();
  comm.broadcast(view(of_rank_0), 0);
  const bool same = torch::equal(weights, of_rank_0);
  std::printf("rank %d of %d: loss %.3f, then %.3f; weights %s those of rank 0\n", comm.rank(), comm.size(),
              static_cast<double>(first), static_cast<double>(last), same ? "equal" : "differ from");
  return same && last < first ? 0 : 1;
}
