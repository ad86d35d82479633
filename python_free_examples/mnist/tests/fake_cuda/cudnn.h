// Stand-in for cuDNN that runs on a CPU, for tests without a GPU (cuda_runtime.h). Images are f32 in the order (image,
// channel, row, column).
#pragma once

#include "cuda_runtime.h"

enum cudnnStatus_t { CUDNN_STATUS_SUCCESS, CUDNN_STATUS_BAD_PARAM };
enum cudnnTensorFormat_t { CUDNN_TENSOR_NCHW };
enum cudnnDataType_t { CUDNN_DATA_FLOAT };
enum cudnnMathType_t { CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH };
enum cudnnConvolutionMode_t { CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION };
enum cudnnConvolutionFwdAlgo_t {
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
};
enum cudnnConvolutionBwdFilterAlgo_t { CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 };

struct cudnnContext {
  cudaStream_t stream;
};
struct cudnnTensorStruct {  // a kernel's outputs are images, its inputs channels
  int images, channels, rows, columns;
  std::size_t at(int image, int channel, int row, int column) const {
    return static_cast<std::size_t>(((image * channels + channel) * rows + row) * columns + column);
  }
};
struct cudnnConvolutionStruct {
  cudnnConvolutionMode_t mode;
  cudnnMathType_t math;
};
using cudnnHandle_t = cudnnContext*;
using cudnnTensorDescriptor_t = cudnnTensorStruct*;
using cudnnFilterDescriptor_t = cudnnTensorStruct*;
using cudnnConvolutionDescriptor_t = cudnnConvolutionStruct*;

inline const char* cudnnGetErrorString(cudnnStatus_t) { return "an error of the stand-in"; }
inline cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext{};
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* shape) {
  *shape = new cudnnTensorStruct{};
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t shape) {
  delete shape;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t shape, cudnnTensorFormat_t, cudnnDataType_t,
                                                int images, int channels, int rows, int columns) {
  *shape = {images, channels, rows, columns};
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* shape) {
  return cudnnCreateTensorDescriptor(shape);
}
inline cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t shape) {
  return cudnnDestroyTensorDescriptor(shape);
}
inline cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t shape, cudnnDataType_t, cudnnTensorFormat_t,
                                                int outputs, int inputs, int rows, int columns) {
  *shape = {outputs, inputs, rows, columns};
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  *convolution = new cudnnConvolutionStruct{};
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  delete convolution;
  return CUDNN_STATUS_SUCCESS;
}
/// Supports only what the trainer uses: no padding, stride and dilation 1.
inline cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_rows,
                                                     int pad_columns, int stride_rows, int stride_columns,
                                                     int dilation_rows, int dilation_columns,
                                                     cudnnConvolutionMode_t mode, cudnnDataType_t) {
  convolution->mode = mode;
  const bool plain = pad_rows == 0 && pad_columns == 0 && stride_rows == 1 && stride_columns == 1 &&
                     dilation_rows == 1 && dilation_columns == 1;
  return plain ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
inline cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

namespace fake_cuda {

inline bool fit(const cudnnTensorStruct& x, const cudnnTensorStruct& w, const cudnnTensorStruct& y,
                const cudnnConvolutionStruct& convolution) {
  return convolution.mode == CUDNN_CROSS_CORRELATION && convolution.math == CUDNN_FMA_MATH && x.images == y.images &&
         x.channels == w.channels && y.channels == w.images && y.rows == x.rows - w.rows + 1 &&
         y.columns == x.columns - w.columns + 1;
}

/// Calls visit(index of x, index of w, index of y) for every product of the convolution, y += x w.
template <class Visit>
void each_product(const cudnnTensorStruct& x, const cudnnTensorStruct& w, const cudnnTensorStruct& y, Visit visit) {
  for (int image = 0; image < y.images; ++image)
    for (int out = 0; out < y.channels; ++out)
      for (int row = 0; row < y.rows; ++row)
        for (int column = 0; column < y.columns; ++column)
          for (int in = 0; in < x.channels; ++in)
            for (int r = 0; r < w.rows; ++r)
              for (int c = 0; c < w.columns; ++c)
                visit(x.at(image, in, row + r, column + c), w.at(out, in, r, c), y.at(image, out, row, column));
}

inline std::size_t size(const cudnnTensorStruct& shape) { return shape.at(shape.images, 0, 0, 0); }

}  // namespace fake_cuda

/// Work space of the faster algorithm, so that tests check whether it is allocated.
inline constexpr std::size_t kFakeCudaWork = 1024;
inline cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                             cudnnFilterDescriptor_t w,
                                                             cudnnConvolutionDescriptor_t convolution,
                                                             cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t,
                                                             std::size_t* bytes) {
  *bytes = kFakeCudaWork;
  return fake_cuda::fit(*x, *w, *y, *convolution) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
inline cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_shape,
                                             const void* x, cudnnFilterDescriptor_t w_shape, const void* w,
                                             cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t,
                                             void* work, std::size_t work_bytes, const void* beta,
                                             cudnnTensorDescriptor_t y_shape, void* y) {
  if (!fake_cuda::fit(*x_shape, *w_shape, *y_shape, *convolution) || work == nullptr || work_bytes < kFakeCudaWork ||
      *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0)
    return CUDNN_STATUS_BAD_PARAM;
  fake_cuda::enqueue(handle->stream, [=, xs = *x_shape, ws = *w_shape, ys = *y_shape] {
    const auto *in = static_cast<const float*>(x), *kernel = static_cast<const float*>(w);
    auto* const out = static_cast<float*>(y);
    std::memset(out, 0, fake_cuda::size(ys) * sizeof(float));
    fake_cuda::each_product(xs, ws, ys,
                            [&](std::size_t i, std::size_t j, std::size_t o) { out[o] += in[i] * kernel[j]; });
  });
  return CUDNN_STATUS_SUCCESS;
}
/// Computes c += a, where a has one element for each channel.
inline cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t a_shape,
                                    const void* a, const void* beta, cudnnTensorDescriptor_t c_shape, void* c) {
  if (a_shape->images != 1 || a_shape->rows != 1 || a_shape->columns != 1 || a_shape->channels != c_shape->channels ||
      *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 1)
    return CUDNN_STATUS_BAD_PARAM;
  fake_cuda::enqueue(handle->stream, [=, shape = *c_shape] {
    const std::size_t plane = shape.at(0, 1, 0, 0), channels = static_cast<std::size_t>(shape.channels);
    for (std::size_t i = 0; i < fake_cuda::size(shape); ++i)
      static_cast<float*>(c)[i] += static_cast<const float*>(a)[i / plane % channels];
  });
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t convolution,
    cudnnFilterDescriptor_t w, cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
  *bytes = 2 * kFakeCudaWork;
  const bool good = algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 && fake_cuda::fit(*x, *w, *y, *convolution);
  return good ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
inline cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                                    cudnnTensorDescriptor_t x_shape, const void* x,
                                                    cudnnTensorDescriptor_t y_shape, const void* y,
                                                    cudnnConvolutionDescriptor_t convolution,
                                                    cudnnConvolutionBwdFilterAlgo_t, void* work, std::size_t work_bytes,
                                                    const void* beta, cudnnFilterDescriptor_t w_shape, void* w) {
  if (!fake_cuda::fit(*x_shape, *w_shape, *y_shape, *convolution) || work == nullptr ||
      work_bytes < 2 * kFakeCudaWork || *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0)
    return CUDNN_STATUS_BAD_PARAM;
  fake_cuda::enqueue(handle->stream, [=, xs = *x_shape, ws = *w_shape, ys = *y_shape] {
    const auto *in = static_cast<const float*>(x), *out = static_cast<const float*>(y);
    auto* const kernel = static_cast<float*>(w);
    std::memset(kernel, 0, fake_cuda::size(ws) * sizeof(float));
    fake_cuda::each_product(xs, ws, ys,
                            [&](std::size_t i, std::size_t j, std::size_t o) { kernel[j] += in[i] * out[o]; });
  });
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void* alpha,
                                                  cudnnTensorDescriptor_t y_shape, const void* y, const void* beta,
                                                  cudnnTensorDescriptor_t bias_shape, void* bias) {
  if (bias_shape->channels != y_shape->channels || *static_cast<const float*>(alpha) != 1 ||
      *static_cast<const float*>(beta) != 0)
    return CUDNN_STATUS_BAD_PARAM;
  fake_cuda::enqueue(handle->stream, [=, shape = *y_shape] {
    const std::size_t plane = shape.at(0, 1, 0, 0), channels = static_cast<std::size_t>(shape.channels);
    std::memset(bias, 0, channels * sizeof(float));
    for (std::size_t i = 0; i < fake_cuda::size(shape); ++i)
      static_cast<float*>(bias)[i / plane % channels] += static_cast<const float*>(y)[i];
  });
  return CUDNN_STATUS_SUCCESS;
}
