// Stand-in for cuBLAS that runs on a CPU, for tests without a GPU (cuda_runtime.h). Matrices are column-major.
#pragma once

#include "cuda_runtime.h"

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_INVALID_VALUE };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
struct cublasContext {
  cudaStream_t stream;
};
using cublasHandle_t = cublasContext*;

inline const char* cublasGetStatusString(cublasStatus_t) { return "an error of the stand-in"; }
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext{};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

/// Computes c (m x n) = alpha op(a) (m x k) op(b) (k x n) + beta c.
inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                  int k, const float* alpha, const float* a, int lda, const float* b, int ldb,
                                  const float* beta, float* c, int ldc) {
  if (lda < (op_a == CUBLAS_OP_N ? m : k) || ldb < (op_b == CUBLAS_OP_N ? k : n) || ldc < m)
    return CUBLAS_STATUS_INVALID_VALUE;
  fake_cuda::enqueue(handle->stream, [=, alpha = *alpha, beta = *beta] {
    const auto at = [](cublasOperation_t op, const float* matrix, int ld, int row, int column) {
      return op == CUBLAS_OP_N ? matrix[row + column * ld] : matrix[column + row * ld];
    };
    for (int column = 0; column < n; ++column)
      for (int row = 0; row < m; ++row) {
        double sum = 0;
        for (int i = 0; i < k; ++i)
          sum += static_cast<double>(at(op_a, a, lda, row, i)) * static_cast<double>(at(op_b, b, ldb, i, column));
        float& out = c[row + column * ldc];
        out = alpha * static_cast<float>(sum) + (beta == 0 ? 0 : beta * out);
      }
  });
  return CUBLAS_STATUS_SUCCESS;
}

/// Computes y = alpha op(a) x + beta y for a of m x n.
inline cublasStatus_t cublasSgemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const float* alpha,
                                  const float* a, int lda, const float* x, int x_step, const float* beta, float* y,
                                  int y_step) {
  if (x_step != 1 || y_step != 1) return CUBLAS_STATUS_INVALID_VALUE;  // not used by the trainer
  const int rows = op == CUBLAS_OP_N ? m : n, columns = op == CUBLAS_OP_N ? n : m;
  return cublasSgemm(handle, op, CUBLAS_OP_N, rows, 1, columns, alpha, a, lda, x, columns, beta, y, rows);
}
