"""What this computer is and can do: BLAS, GEMM speed, compiler, memory, device. Knows no model."""
