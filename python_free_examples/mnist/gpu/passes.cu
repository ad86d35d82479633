// Forward and backward passes on a GPU. cuBLAS computes matrix products, cuDNN the convolution, and kernels.cuh the
// rest, all in the device's stream.
//
// A pass is a list of calls. Each layer appends its forward calls to the list, and adds its backward calls as a group.
// The groups run in reverse order of the layers. Everything is computed in f32, by algorithms that give the same bits
// every time.
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "dataset.hpp"
#include "gpu/cuda_device.hpp"
#include "gpu/kernels.cuh"

namespace mnist::cuda {
namespace {

const float kOne = 1, kZero = 0;

int as_int(std::size_t value) { return static_cast<int>(value); }

struct CudaPass : Pass {
  CudaPass(CudaDevice& on, std::size_t count)
      : device(on),
        host_pixels(pinned_memory<float>(count * kPixels)),
        host_labels(pinned_memory<std::uint8_t>(count)),
        host_scores(pinned_memory<ImageScore>(count)),
        device_labels(device_memory<std::uint8_t>(count)),
        scores(device_memory<ImageScore>(count)) {
    images = count;
    pixels = {host_pixels.get(), count * kPixels};
    labels = {host_labels.get(), count};
  }

  void loss(float weight) override {
    const cudaStream_t stream = device.cuda_stream();
    check(cudaMemcpyAsync(device_labels.get(), host_labels.get(), images, cudaMemcpyDefault, stream), "labels");
    each(stream, images,
         CrossEntropy{logits.data(), device_labels.get(), weight, logit_gradients.data(), scores.get()});
    check(cudaMemcpyAsync(host_scores.get(), scores.get(), images * sizeof(ImageScore), cudaMemcpyDefault, stream),
          "scores");
  }

  Score score() override {
    wait_for(device);
    Score sum;
    for (std::size_t i = 0; i < images; ++i) sum += {host_scores.get()[i].loss, host_scores.get()[i].correct};
    return sum;
  }

  /// Returns memory that lives as long as the pass.
  Vector floats(std::size_t count) { return buffers.emplace_back(device.make(count)); }

  CudaDevice& device;
  std::shared_ptr<float> host_pixels;
  std::shared_ptr<std::uint8_t> host_labels;
  std::shared_ptr<ImageScore> host_scores;
  std::shared_ptr<std::uint8_t> device_labels;
  std::shared_ptr<ImageScore> scores;
  std::vector<Vector> buffers;
};

using TensorShape = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;

TensorShape pictures(std::size_t images, std::size_t channels, std::size_t rows, std::size_t columns) {
  cudnnTensorDescriptor_t shape = nullptr;
  check(cudnnCreateTensorDescriptor(&shape), "tensor");
  TensorShape owned(shape);
  check(cudnnSetTensor4dDescriptor(shape, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, as_int(images), as_int(channels),
                                   as_int(rows), as_int(columns)),
        "tensor");
  return owned;
}

/// Convolution of the pixels, 3 x 3, stride 1, no padding: shapes, algorithms, work space and outputs.
struct Convolution {
  Convolution(CudaDevice& on, CudaPass& pass, std::size_t outputs)
      : device(on),
        source(pictures(pass.images, 1, kSide, kSide)),
        output(pictures(pass.images, outputs, kSide - 2, kSide - 2)),
        bias(pictures(1, outputs, 1, 1)),
        pixels(pass.floats(pass.images * kPixels).span()),
        values(pass.floats(pass.images * outputs * (kSide - 2) * (kSide - 2)).span()) {
    cudnnFilterDescriptor_t kernel_shape = nullptr;
    check(cudnnCreateFilterDescriptor(&kernel_shape), "kernel");
    kernel.reset(kernel_shape);
    check(cudnnSetFilter4dDescriptor(kernel_shape, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, as_int(outputs), 1, 3, 3),
          "kernel");
    cudnnConvolutionDescriptor_t description = nullptr;
    check(cudnnCreateConvolutionDescriptor(&description), "convolution");
    convolution.reset(description);
    check(cudnnSetConvolution2dDescriptor(description, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
          "convolution");
    check(cudnnSetConvolutionMathType(description, CUDNN_FMA_MATH), "arithmetic of the convolution");

    std::size_t forward_bytes = 0, backward_bytes = 0;
    // If this version does not support the faster algorithm, the other one needs no memory and is always available.
    if (cudnnGetConvolutionForwardWorkspaceSize(device.dnn(), source.get(), kernel.get(), convolution.get(),
                                                output.get(), forward_algorithm,
                                                &forward_bytes) != CUDNN_STATUS_SUCCESS) {
      forward_algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
      forward_bytes = 0;
    }
    check(cudnnGetConvolutionBackwardFilterWorkspaceSize(device.dnn(), source.get(), output.get(), convolution.get(),
                                                         kernel.get(), kBackwardAlgorithm, &backward_bytes),
          "gradient of a kernel");
    work_bytes = std::max(forward_bytes, backward_bytes);
    work = device_memory<std::byte>(work_bytes);
  }

  void forward(const Layer& layer) const {
    check(cudnnConvolutionForward(device.dnn(), &kOne, source.get(), pixels.data(), kernel.get(), layer.kernel.data(),
                                  convolution.get(), forward_algorithm, work.get(), work_bytes, &kZero, output.get(),
                                  values.data()),
          "convolution");
    check(cudnnAddTensor(device.dnn(), &kOne, bias.get(), layer.bias.data(), &kOne, output.get(), values.data()),
          "bias of a convolution");
  }
  /// Computes the gradients of kernel and bias. Requires that `values` holds the gradients of the outputs.
  void backward(const Layer& layer) const {
    check(cudnnConvolutionBackwardFilter(device.dnn(), &kOne, source.get(), pixels.data(), output.get(), values.data(),
                                         convolution.get(), kBackwardAlgorithm, work.get(), work_bytes, &kZero,
                                         kernel.get(), layer.kernel_gradient.data()),
          "gradient of a kernel");
    check(cudnnConvolutionBackwardBias(device.dnn(), &kOne, output.get(), values.data(), &kZero, bias.get(),
                                       layer.bias_gradient.data()),
          "gradient of a bias");
  }

  static constexpr auto kBackwardAlgorithm =
      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;  // adds in a fixed order, so equal runs give equal bits

  CudaDevice& device;
  TensorShape source, output, bias;
  Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor> kernel;
  Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor> convolution;
  cudnnConvolutionFwdAlgo_t forward_algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  std::size_t work_bytes = 0;
  std::shared_ptr<std::byte> work;
  std::span<float> pixels, values;
};

class CudaBuilder : public PassBuilder {
 public:
  CudaBuilder(CudaDevice& device, std::size_t images, bool training)
      : device_(device), images_(images), training_(training), pass_(std::make_unique<CudaPass>(device, images)) {}

  void convolution(const Layer& layer) override {
    const auto outputs = static_cast<std::size_t>(layer.kernel_shape[0]);
    const auto made = std::make_shared<Convolution>(device_, *pass_, outputs);
    upload_pixels(made->pixels);
    add(layer.name + " forward", [made, layer] { made->forward(layer); });
    pictures_ = made->values;
    channels_ = outputs;
    if (training_)
      groups_.push_back({{layer.name + " backward weights", [made, layer] { made->backward(layer); }, layer.offset}});
  }

  void max_pool_relu(const std::string& name) override {
    const Pooling shape{channels_, (kSide - 2) / 2, (kSide - 2) / 2};
    const std::size_t windows = images_ * shape.channels * shape.rows * shape.columns;
    const Edge out = edge(windows / images_);
    const std::shared_ptr<std::uint8_t> places = device_memory<std::uint8_t>(windows);
    const std::span<float> pictures = pictures_;
    add(name + " forward", [=, stream = device_.cuda_stream()] {
      each(stream, windows, MaxPoolRelu{shape, pictures.data(), out.value.data(), places.get()});
    });
    here_ = out;
    if (!training_) return;
    // After the pool no call reads the images again, so their gradient reuses that memory.
    groups_.push_back(
        {{name + " backward", [=, stream = device_.cuda_stream()] {
            each(stream, windows, MaxPoolReluBackward{shape, out.gradient.data(), places.get(), pictures.data()});
          }}});
  }

  /// Matrices are row-major, which cuBLAS sees as transposed: y^T = kernel x^T, and its derivatives.
  void dense(const Layer& layer, bool relu) override {
    if (here_.value.empty()) {
      here_.value = pass_->floats(images_ * kPixels).span();
      upload_pixels(here_.value);
    }
    const int outputs = static_cast<int>(layer.kernel_shape[0]), inputs = static_cast<int>(layer.kernel_shape[1]),
              images = as_int(images_);
    const cublasHandle_t blas = device_.blas();
    const cudaStream_t stream = device_.cuda_stream();
    const Edge in = here_, out = edge(static_cast<std::size_t>(outputs));
    add(layer.name + " forward", [=] {
      check(cublasSgemm(blas, CUBLAS_OP_T, CUBLAS_OP_N, outputs, images, inputs, &kOne, layer.kernel.data(), inputs,
                        in.value.data(), inputs, &kZero, out.value.data(), outputs),
            "dense layer");
      each(stream, out.value.size(), AddBias{out.value.data(), layer.bias.data(), layer.bias.size(), relu});
    });
    here_ = out;
    if (!training_) return;

    std::vector<Call> group;
    if (relu)
      group.push_back({layer.name + " relu backward", [=] {
                         each(stream, out.value.size(), ReluBackward{out.gradient.data(), out.value.data()});
                       }});
    const std::span<const float> ones = ones_of_images();
    group.push_back({layer.name + " backward weights",
                     [=] {
                       check(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_T, inputs, outputs, images, &kOne,
                                         in.value.data(), inputs, out.gradient.data(), outputs, &kZero,
                                         layer.kernel_gradient.data(), inputs),
                             "gradient of a kernel");
                       check(cublasSgemv(blas, CUBLAS_OP_N, outputs, images, &kOne, out.gradient.data(), outputs,
                                         ones.data(), 1, &kZero, layer.bias_gradient.data(), 1),
                             "gradient of a bias");
                     },
                     layer.offset});
    if (!in.gradient.empty())
      group.push_back({layer.name + " backward data", [=] {
                         check(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, inputs, images, outputs, &kOne,
                                           layer.kernel.data(), inputs, out.gradient.data(), outputs, &kZero,
                                           in.gradient.data(), inputs),
                               "gradient of a dense layer");
                       }});
    groups_.push_back(std::move(group));
  }

  std::unique_ptr<Pass> finish() override {
    pass_->logits = here_.value;
    if (training_) pass_->logit_gradients = here_.gradient;
    for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)
      std::move(group->begin(), group->end(), std::back_inserter(pass_->backward));
    return std::move(pass_);
  }

 private:
  /// Activations between two layers, images x features. The gradient is empty if it is not needed.
  struct Edge {
    std::span<float> value, gradient;
  };

  Edge edge(std::size_t features) {
    const std::span<float> value = pass_->floats(images_ * features).span();
    return {value, training_ ? pass_->floats(images_ * features).span() : std::span<float>()};
  }

  void add(std::string name, std::function<void()> execute) {
    pass_->forward.push_back({std::move(name), std::move(execute)});
  }

  void upload_pixels(std::span<float> to) {
    add("pixels", [from = pass_->pixels, to, &device = device_] { device.copy(from, to); });
  }

  std::span<const float> ones_of_images() {
    if (ones_.empty()) {
      ones_ = pass_->floats(images_).span();
      device_.write(std::vector<float>(images_, 1.0f), ones_);
    }
    return ones_;
  }

  CudaDevice& device_;
  const std::size_t images_;
  const bool training_;
  std::unique_ptr<CudaPass> pass_;
  std::span<float> pictures_;  // output images of the convolution
  std::size_t channels_ = 0;   // output channels of the convolution
  Edge here_;                  // output of the last layer that was added
  std::span<float> ones_;
  std::vector<std::vector<Call>> groups_;  // backward calls, by layer
};

}  // namespace

std::unique_ptr<PassBuilder> CudaDevice::build(std::size_t images, bool training) {
  return std::make_unique<CudaBuilder>(*this, images, training);
}

}  // namespace mnist::cuda
